//! Etcd programs for comparison in tests.

use std::path::PathBuf;

/// The reference version. `checks/etcd/build` builds it.
pub const REFERENCE_VERSION: &str = "3.7.3";

/// The advice in a skip's reason when there is none.
pub const MISSING: &str =
    "there is no etcd: `checks/etcd/build` builds 3.7.3, apt has etcd-server, ETCD names a program";

/// Every etcd on this machine, the reference first: only those that `ETCD` names (several as in `PATH`), or
/// else the one from `checks/etcd/build` and those on the `PATH`.
#[must_use]
pub fn programs() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("ETCD") {
        return std::env::split_paths(&named).collect();
    }
    let mut found: Vec<PathBuf> = built().into_iter().collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut on_path = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    found.extend(on_path.find(|program| program.is_file()));
    found
}

/// The reference, or another if it was not built.
#[must_use]
pub fn program() -> Option<PathBuf> {
    programs().into_iter().next()
}

/// The output of `checks/etcd/build`: in the target folder, three levels above a test program.
fn built() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let target = test.ancestors().nth(3)?;
    let program = target.join(format!("etcd-{REFERENCE_VERSION}/etcd"));
    program.is_file().then_some(program)
}
