//! `cert`: a CA for a trial, and the certificates that it issues.

use std::path::Path;

use bowline_tls::{Authority, Issued, KeyPairFiles, Purpose, Request, TlsError};

use crate::args::{Cert, CertClient, CertPlace};
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// The name of the CA's files.
const CA: &str = "ca";

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Cert) -> Result<(), Failure> {
    match args {
        Cert::Ca(args) => {
            let files = free_files(&args.place, CA)?;
            let authority =
                Authority::generate(&args.name, args.days).map_err(|error| failure(&error))?;
            write(context, authority.own(), &args.place.dir, CA, &files)
        }
        Cert::Server(args) => issue(context, Purpose::Server, &args.client, &args.host),
        Cert::Peer(args) => issue(context, Purpose::Peer, &args.client, &args.host),
        Cert::Client(args) => issue(context, Purpose::Client, args, &[]),
    }
}

fn issue(
    context: &mut Context<'_, '_>,
    purpose: Purpose,
    args: &CertClient,
    hosts: &[String],
) -> Result<(), Failure> {
    let files = free_files(&args.place, &args.name)?;
    let own = of_name(&args.place.dir, CA);
    if !own.key.exists() {
        let directory = args.place.dir.display();
        let text = format!(
            "there is no CA in {directory}: make one with `bowline cert ca --dir {directory}`"
        );
        return Err(Failure::new(Exit::Invalid, text));
    }
    let authority = Authority::read(&own).map_err(|error| failure(&error))?;
    let request = Request::new(purpose, &*args.name, hosts.iter().cloned()).days(args.days);
    let issued = authority.issue(&request).map_err(|error| failure(&error))?;
    write(context, &issued, &args.place.dir, &args.name, &files)
}

fn of_name(directory: &Path, name: &str) -> KeyPairFiles {
    KeyPairFiles {
        certificate: directory.join(format!("{name}.crt")),
        key: directory.join(format!("{name}.key")),
    }
}

/// The files of a name, which do not exist or may be replaced.
fn free_files(place: &CertPlace, name: &str) -> Result<KeyPairFiles, Failure> {
    let files = of_name(&place.dir, name);
    for file in [&files.key, &files.certificate] {
        if !place.force && file.exists() {
            let text = format!("{} exists: --force replaces it", file.display());
            return Err(Failure::new(Exit::Invalid, text));
        }
    }
    Ok(files)
}

fn write(
    context: &mut Context<'_, '_>,
    issued: &Issued,
    directory: &Path,
    name: &str,
    files: &KeyPairFiles,
) -> Result<(), Failure> {
    issued
        .write(directory, name)
        .map_err(|error| failure(&error))?;
    context.record(&[
        (
            "certificate",
            files.certificate.display().to_string().into(),
        ),
        ("key", files.key.display().to_string().into()),
    ])
}

fn failure(error: &TlsError) -> Failure {
    let exit = match error {
        TlsError::Unwritable { .. } => Exit::Io,
        _ => Exit::Invalid,
    };
    Failure::new(exit, error.to_string())
}
