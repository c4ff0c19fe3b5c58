//! Every call fails in every way: the sites, the sample, the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use bowline_testing::Seed;
use bowline_testing::fault::{Call, Failure, Rule, Traced};

use crate::script::{Expect, Run, Script};

/// No case takes longer, on the slowest machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// How many cases run side by side.
const THREADS: usize = 2;
/// After so many failures no more cases are tried.
const FAILURES_MAX: usize = 10;

/// How a call goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// `EIO`, and nothing was done.
    Io,
    /// `EIO`, but it was done.
    IoAfter,
    /// `ENOSPC`.
    NoSpace,
    /// `EMFILE`: there may be no more open files. When a directory is to be synced, nobody is to notice.
    NoFile,
    /// `EINTR`: nobody is to notice.
    Interrupted,
    /// One byte is read or written: nobody is to notice.
    Short,
    /// A sync fails, and what it should have covered is lost although it reads well.
    LostSync,
    /// This and every later call fails with `EIO`.
    IoFromHere,
    /// This and every later call that may need space fails with `ENOSPC`.
    NoSpaceFromHere,
}

impl Fault {
    const ALL: [Fault; 9] = [
        Fault::Io,
        Fault::IoAfter,
        Fault::NoSpace,
        Fault::NoFile,
        Fault::Interrupted,
        Fault::Short,
        Fault::LostSync,
        Fault::IoFromHere,
        Fault::NoSpaceFromHere,
    ];

    /// Whether a call of this kind can go wrong so.
    fn applies_to(self, call: Call) -> bool {
        match self {
            Fault::Io | Fault::Interrupted | Fault::IoFromHere => true,
            Fault::IoAfter => call.is_change(),
            Fault::NoSpace | Fault::NoSpaceFromHere => call.needs_space(),
            Fault::NoFile => {
                let opens = [Call::Open, Call::Create, Call::ReadDir, Call::SyncDir];
                opens.contains(&call)
            }
            Fault::Short => matches!(call, Call::Read | Call::Write),
            Fault::LostSync => call == Call::Sync,
        }
    }

    /// What is to come of it, when it meets a call of this kind.
    fn expect(self, call: Call) -> Expect {
        match self {
            Fault::Interrupted | Fault::Short => Expect::NoError,
            Fault::NoFile if call == Call::SyncDir => Expect::NoError,
            Fault::IoFromHere | Fault::NoSpaceFromHere => Expect::FromHereOn,
            _ => Expect::OneFault,
        }
    }
}

/// Where in a program a call is made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Site {
    script: Script,
    phase: &'static str,
    call: Call,
    file: &'static str,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (script, call) = (format!("{:?}", self.script), format!("{:?}", self.call));
        let (phase, file) = (self.phase, self.file);
        write!(f, "{script:<9} {phase:<22} {call:<10} {file:<14}")
    }
}

/// What kind of file a call is about.
fn file_kind(call: &Traced) -> &'static str {
    let path = call
        .paths
        .last()
        .map_or("", |path| path.to_str().unwrap_or(""));
    let name = path.rsplit('/').next().unwrap_or("");
    match name {
        "" => "parent",
        "db" => "root",
        "copy" => "copy root",
        _ if path.starts_with("copy") => "of the copy",
        "log" => "log directory",
        "tables" => "table directory",
        "LOCK" | "BOWLINE" | "BOWLINE.new" => match name {
            "LOCK" => "LOCK",
            "BOWLINE" => "BOWLINE",
            _ => "BOWLINE.new",
        },
        "MEMBER" => "MEMBER",
        "graph-view" => "graph view",
        "graph-view.new" => "graph-view.new",
        _ if name.ends_with(".table") => "table",
        _ if name.ends_with(".blob") => "blob file",
        _ if name.ends_with(".log") => "log segment",
        _ if name.ends_with(".tmp") => "spare segment",
        _ if name.starts_with("manifest-") => "manifest",
        _ => panic!("an unknown file {path}"),
    }
}

/// One run with one fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Case {
    script: Script,
    /// The number of the call, from 0.
    at: usize,
    fault: Fault,
}

/// A script as it runs on a sound disk.
struct Sound {
    calls: Vec<Traced>,
    phases: Vec<(&'static str, usize)>,
}

impl Sound {
    fn of(script: Script) -> Sound {
        let mut run = Run::new(script, Expect::NoError);
        run.run();
        Sound {
            calls: run.vfs.trace(),
            phases: run.phases,
        }
    }

    fn site(&self, script: Script, at: usize) -> Site {
        let phases = self.phases.iter().rev();
        let mut phases = phases.filter(|(_, start)| *start <= at);
        Site {
            script,
            phase: phases.next().map_or("", |(name, _)| name),
            call: self.calls[at].call,
            file: file_kind(&self.calls[at]),
        }
    }
}

/// Runs a case; gives back what the database said.
fn run_case(case: Case, sound: &Sound) -> Vec<String> {
    let met = sound.calls[case.at].call;
    let mut run = Run::new(case.script, case.fault.expect(met));
    let nth = case.at as u64 + 1;
    let count = |counts: &dyn Fn(Call) -> bool| {
        let calls = sound.calls[..=case.at].iter();
        calls.filter(|traced| counts(traced.call)).count() as u64
    };
    match case.fault {
        Fault::Io => run.vfs.add(Rule::on_all().nth(nth).fail(Failure::Io)),
        Fault::IoAfter => run.vfs.add(Rule::on_all().nth(nth).fail_after(Failure::Io)),
        Fault::NoSpace => run.vfs.add(Rule::on_all().nth(nth).fail(Failure::NoSpace)),
        Fault::NoFile => run.vfs.add(Rule::on_all().nth(nth).fail(Failure::NoFile)),
        Fault::Interrupted => run
            .vfs
            .add(Rule::on_all().nth(nth).fail(Failure::Interrupted)),
        Fault::Short => run.vfs.add(Rule::on_all().nth(nth).short(1)),
        Fault::LostSync => {
            let before = count(&|call| call == Call::Sync) - 1;
            run.disk.fail_syncs_after(before, 1);
        }
        Fault::IoFromHere => run
            .vfs
            .add(Rule::on_all().nth(nth).for_ever().fail(Failure::Io)),
        Fault::NoSpaceFromHere => {
            let rule = Rule::on_calls_that_need_space().for_ever();
            let nth = count(&Call::needs_space);
            run.vfs.add(rule.nth(nth).fail(Failure::NoSpace));
        }
    }
    run.run();
    run.errors
}

/// What became of the cases of a site.
#[derive(Default)]
struct Tally {
    seen: usize,
    cases: usize,
    told: usize,
    poisoned: usize,
    faults: BTreeSet<Fault>,
}

fn sites_of(sound: &BTreeMap<Script, Sound>) -> BTreeMap<Site, Vec<usize>> {
    let mut sites: BTreeMap<Site, Vec<usize>> = BTreeMap::new();
    for (script, sound) in sound {
        for at in 0..sound.calls.len() {
            sites.entry(sound.site(*script, at)).or_default().push(at);
        }
    }
    sites
}

/// One case for each site and fault; then at least `more` others.
fn choose(sites: &BTreeMap<Site, Vec<usize>>, seed: Seed, more: usize) -> BTreeSet<Case> {
    let mut rng = seed.rng();
    let mut chosen = BTreeSet::new();
    let mut others = Vec::new();
    for (site, calls) in sites {
        for fault in Fault::ALL {
            if !fault.applies_to(site.call) {
                continue;
            }
            let first = rng.usize(0..calls.len());
            for (position, at) in calls.iter().enumerate() {
                let script = site.script;
                let case = Case {
                    script,
                    at: *at,
                    fault,
                };
                if position == first {
                    chosen.insert(case);
                } else {
                    others.push(case);
                }
            }
        }
    }
    rng.shuffle(&mut others);
    chosen.extend(others.into_iter().take(more));
    chosen
}

/// Twenty cases of all there are.
fn some_of(sites: &BTreeMap<Site, Vec<usize>>, seed: Seed) -> Vec<Case> {
    let mut all: Vec<Case> = choose(sites, seed, usize::MAX).into_iter().collect();
    seed.rng().shuffle(&mut all);
    all.truncate(20);
    all
}

#[test]
fn whatever_call_fails_what_was_acknowledged_is_there() {
    let seed = Seed::from_env_or(0xfa_0175);
    let _on_failure = seed.print_on_failure("whatever_call_fails_what_was_acknowledged_is_there");
    let more = match std::env::var("BOWLINE_FAULT_CASES") {
        Ok(text) if text == "all" => usize::MAX,
        Ok(text) => text
            .parse()
            .expect("BOWLINE_FAULT_CASES must be a number or `all`"),
        Err(_) => 0,
    };
    let scripts = [
        Script::Synced,
        Script::Batched,
        Script::Manifest,
        Script::Ingestion,
    ];
    let sound: BTreeMap<_, _> = scripts.map(|script| (script, Sound::of(script))).into();
    let sites = sites_of(&sound);
    let mut cases = choose(&sites, seed, more);
    // Some more, which are new in each run.
    let test = "-p bowline --test faults whatever_call_fails";
    cases.extend(some_of(&sites, Seed::fresh(test).unwrap_or(seed)));
    let mut tallies: BTreeMap<Site, Tally> = BTreeMap::new();
    for (site, calls) in &sites {
        let tally = tallies.entry(site.clone()).or_default();
        tally.seen = calls.len();
    }
    let only: Option<String> = std::env::var("BOWLINE_FAULT_ONLY").ok();
    let mut failures = Vec::new();
    let wanted: Vec<(Case, Site, String)> = cases
        .iter()
        .map(|case| (*case, sound[&case.script].site(case.script, case.at)))
        .map(|(case, site)| (case, site.clone(), format!("{case:?} ({site})")))
        .filter(|(_, _, name)| {
            // Parts of the name, all of which must be in it.
            only.as_ref()
                .is_none_or(|only| only.split('|').all(|part| name.contains(part)))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        let watchdog = Watchdog::new();
        while let Some((case, site, name)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            watchdog.begin(name);
            let run = || run_case(*case, &sound[&case.script]);
            let result = catch_unwind(AssertUnwindSafe(run)).map_err(|cause| in_words(&*cause));
            let mut results = results.lock().expect("nobody panics with it");
            if result.is_err() && failed.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
                next.store(wanted.len(), Ordering::Relaxed);
            }
            results.push((*case, site.clone(), name.clone(), result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    for (case, site, name, result) in results.into_inner().expect("nobody panics with it") {
        let tally = tallies.entry(site).or_default();
        tally.cases += 1;
        tally.faults.insert(case.fault);
        match result {
            Ok(errors) => {
                tally.told += usize::from(!errors.is_empty());
                let is_poisoned = |text: &String| text.contains("writes are refused");
                tally.poisoned += usize::from(errors.iter().any(is_poisoned));
            }
            Err(words) => failures.push(format!("{name}: {words}")),
        }
    }
    println!(
        "script    phase                  call       file            calls  cases  told  stopped"
    );
    for (site, tally) in &tallies {
        println!(
            "{site} {:>6} {:>6} {:>5} {:>8}",
            tally.seen, tally.cases, tally.told, tally.poisoned
        );
    }
    let calls: usize = sound.values().map(|sound| sound.calls.len()).sum();
    let every = sites
        .iter()
        .map(|(site, calls)| {
            let faults = Fault::ALL
                .iter()
                .filter(|fault| fault.applies_to(site.call));
            faults.count() * calls.len()
        })
        .sum::<usize>();
    println!(
        "{} cases at {} sites ({calls} calls; {every} cases would be every call with every fault)",
        cases.len(),
        tallies.len()
    );
    for failure in &failures {
        println!("FAILED {failure}");
    }
    assert!(failures.is_empty(), "{} cases failed", failures.len());
    if only.is_none() {
        for (site, tally) in &tallies {
            let wanted = Fault::ALL
                .iter()
                .filter(|fault| fault.applies_to(site.call));
            let left_out: Vec<_> = wanted.filter(|f| !tally.faults.contains(f)).collect();
            assert!(left_out.is_empty(), "{site}: {left_out:?} was left out");
        }
    }
}

fn in_words(cause: &(dyn std::any::Any + Send)) -> String {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// Ends the process when a case hangs, since nothing else could.
struct Watchdog(mpsc::Sender<String>);

impl Watchdog {
    fn new() -> Watchdog {
        let (sender, receiver) = mpsc::channel::<String>();
        std::thread::spawn(move || {
            let mut current = String::new();
            loop {
                match receiver.recv_timeout(DEADLINE) {
                    Ok(name) => current = name,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        eprintln!("{current} hangs");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog(sender)
    }

    fn begin(&self, name: &str) {
        let _gone = self.0.send(name.to_owned());
    }
}
