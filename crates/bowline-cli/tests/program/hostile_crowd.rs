//! A crowd of hostile connections on both ports of a cluster, all ways of attack at once: memory stays within the
//! budget, no member ends, and a client that does everything right is answered, nearly as fast as without the crowd.
//!
//! The attackers run when nobody else wants a processor, as they would on machines of their own: what slows the good
//! client is then what members do for them, not what the attackers compute.
//!
//! `BOWLINE_CROWD_SECONDS=600` is the full size, and `BOWLINE_PROGRAM` names another build of the program: latencies
//! of an optimised one are worth reading. `BOWLINE_CROWD_ATTACKS=deaf,half` leaves the attacks with one of
//! these in their names. With `BOWLINE_CROWD_ELSEWHERE` they attack another cluster on the machine, which runs when nobody
//! else wants a processor: what the good client feels then is the machine, not what its members do for the crowd.
//! Without the program `chrt` the attackers run at the lowest priority, and that counts as a part that is skipped.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline_testing::ports::free_ports;
use bowline_testing::skip_part;

use crate::attacks::{Attack, ON_THE_CLIENT_PORT, ON_THE_PEER_PORT};
use crate::crowd::{MIB, memory, try_put};
use crate::raw_http2::Raw;
use crate::{Place, program};

const MEMBERS: usize = 3;
/// What each member may hold for all clients, and for one of them.
const BUDGET: &str = "--max-client-memory 67108864 --max-connection-memory 16777216 \
                      --partial-request-timeout 2s --unread-reply-timeout 2s --max-resets 1000";
/// The budget of the flags above, what the peer port keeps of unfinished messages from one address (96 MiB), 64 KiB for
/// each connection, and what the allocator takes.
const MEMORY_MAX: u64 = (64 + 96 + 120) * MIB;
/// Between two attacks of one kind. A crowd that takes all processors slows everybody, whatever a server does: here three
/// members, the crowd and the good client share one machine.
const PAUSE: Duration = Duration::from_millis(250);
/// How long members may refuse the good client, one put after the other.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// How long after the measurement an attack of each kind may take to reach a member.
const ATTACKED_WITHIN: Duration = Duration::from_secs(60);
/// How long the good client is measured without the crowd: a tenth of its time beside it, and this at least.
const ALONE_MIN: Duration = Duration::from_secs(3);

/// A member's process, and where it listens.
struct Member {
    process: Child,
    client_at: String,
    peer_at: String,
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts three members in directories of this prefix, which run only when nobody else wants the processors, or as usual.
fn start_cluster(place: &Place, prefix: &str, is_idle: bool) -> Vec<Member> {
    let first = free_ports(2 * MEMBERS as u16);
    let at = |number: u16| format!("127.0.0.1:{}", first + number);
    let name = |member: u16| format!("{prefix}{member}=http://{}", at(2 * member + 1));
    let all: Vec<_> = (0..MEMBERS as u16).map(name).collect();
    let mut members = Vec::new();
    for member in 0..MEMBERS as u16 {
        let (client_at, peer_at) = (at(2 * member), at(2 * member + 1));
        let line = format!(
            "serve --name {prefix}{member} --data-dir {prefix}{member} --listen-client-urls http://{client_at} \
             --listen-peer-urls http://{peer_at} --initial-advertise-peer-urls http://{peer_at} \
             --initial-cluster {} {BUDGET}",
            all.join(",")
        );
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = match is_idle {
            true => place.command_of("chrt"),
            false => place.command(&[]),
        };
        if is_idle {
            command.args(["--idle", "0", &program()]);
        }
        command.args(&words);
        let process = command.stderr(Stdio::piped()).spawn().expect("a process");
        members.push(Member {
            process,
            client_at,
            peer_at,
        });
    }
    for member in &mut members {
        let stderr = member.process.stderr.take().expect("a pipe");
        let mut log = BufReader::new(stderr).lines();
        assert!(log.any(|line| line.expect("a line").contains("ready")));
        // It never waits for somebody to read its log.
        std::thread::spawn(move || log.for_each(drop));
    }
    members
}

/// Ends the crowd when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_hostile_crowd_leaves_a_good_client_its_answers_and_the_members_their_memory() {
    let seconds = std::env::var("BOWLINE_CROWD_SECONDS");
    let seconds = seconds.map_or(6, |seconds| seconds.parse().expect("a number of seconds"));
    let place = Place::new();
    let mut members = start_cluster(&place, "m", false);
    let pids: Vec<_> = members.iter().map(|member| member.process.id()).collect();
    let mut good = Raw::open(&members[0].client_at);
    for number in 0..200 {
        answered(&mut good, &format!("k/{number}"), &[b'v'; 32 << 10]);
    }
    let beside = Duration::from_secs(seconds);
    let can_be_idle = has_chrt();
    let alone = latencies(&mut good, ALONE_MIN.max(beside / 10), || {});
    let empty: Vec<_> = pids.iter().map(|pid| memory(*pid, "RssAnon")).collect();
    let mut most = empty.clone();
    let (is_over, attacks) = (AtomicBool::new(false), AtomicU64::new(0));
    let elsewhere = std::env::var_os("BOWLINE_CROWD_ELSEWHERE").is_some();
    let elsewhere = elsewhere.then(|| start_cluster(&place, "e", true));
    let attacked = elsewhere.as_ref().unwrap_or(&members);
    let clients: Vec<_> = attacked.iter().map(|one| one.client_at.clone()).collect();
    let peers: Vec<_> = attacked.iter().map(|one| one.peer_at.clone()).collect();
    let on_clients = ON_THE_CLIENT_PORT.map(|attack| (attack, clients.clone()));
    let on_peers = ON_THE_PEER_PORT.map(|attack| (attack, peers.clone()));
    let wanted = std::env::var("BOWLINE_CROWD_ATTACKS").unwrap_or_default();
    let ways: Vec<(Attack, Vec<String>)> = on_clients
        .into_iter()
        .chain(on_peers)
        .filter(|(attack, _)| wanted.split(',').any(|part| attack.name.contains(part)))
        .collect();
    let met: Vec<_> = ways.iter().map(|_| AtomicU64::new(0)).collect();
    let computed_before: Duration = pids.iter().map(|pid| computed(*pid)).sum();
    let beside = std::thread::scope(|scope| {
        for ((attack, places), count) in ways.iter().zip(&met) {
            let (is_over, attacks) = (&is_over, &attacks);
            scope.spawn(move || {
                run_when_idle(can_be_idle);
                for at in places.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // The server may hang up at any time: then it begins anew, at the next member.
                    let met = std::panic::catch_unwind(|| attack.once(at));
                    attacks.fetch_add(1, Ordering::Relaxed);
                    if met.unwrap_or(false) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(PAUSE);
                }
            });
        }
        // Also when a request of the good client is not answered.
        let _over = Over(&is_over);
        let latencies = latencies(&mut good, beside, || {
            for (pid, most) in pids.iter().zip(&mut most) {
                *most = memory(*pid, "RssAnon").max(*most);
            }
        });
        // On a machine that does much else, attackers may not have had a processor yet.
        let begun = Instant::now();
        let have_all_met = || met.iter().all(|count| count.load(Ordering::Relaxed) > 0);
        while !have_all_met() && begun.elapsed() < ATTACKED_WITHIN {
            answered(&mut good, "good", b"value");
            std::thread::sleep(Duration::from_millis(20));
        }
        latencies
    });
    let computed = pids.iter().map(|pid| computed(*pid)).sum::<Duration>() - computed_before;
    let more: Vec<_> = most
        .iter()
        .zip(&empty)
        .map(|(most, empty)| most - empty)
        .collect();
    println!(
        "alone {}; beside {} attacks in {seconds} s {}; {:?} MiB more; {computed:.1?} of the processors",
        shown(&alone),
        attacks.load(Ordering::Relaxed),
        shown(&beside),
        more.iter().map(|bytes| bytes / MIB).collect::<Vec<_>>()
    );
    for ((attack, _), met) in ways.iter().zip(&met) {
        let (name, met) = (attack.name, met.load(Ordering::Relaxed));
        println!("{name}: {met}");
        assert!(met > 0, "no attack of this kind reached a member: {name}");
    }
    for (member, more) in more.iter().enumerate() {
        assert!(*more < MEMORY_MAX, "m{member}: {} MiB", more / MIB);
    }
    for (number, member) in members.iter_mut().enumerate() {
        let ended = member.process.try_wait().expect("a process");
        assert!(ended.is_none(), "m{number} ended: {ended:?}");
        // Each is still a member that answers.
        answered(&mut Raw::open(&member.client_at), "after", b"value");
    }
}

/// How long a process has used the processors.
fn computed(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    // Of user and system, in ticks of a hundredth of a second. The name before them may hold anything.
    let (_, numbers) = stat.rsplit_once(')').expect("its name");
    let ticks = numbers.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|one| one.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(10 * ticks)
}

/// Whether the system has the program that lets a thread run only while no other wants its processor.
fn has_chrt() -> bool {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0", "true"]).stdout(Stdio::null());
    let has_chrt = command.status().is_ok_and(|status| status.success());
    if !has_chrt {
        skip_part("the attackers run at the lowest priority: there is no chrt");
    }
    has_chrt
}

/// Lets this thread run only while no other thread wants its processor; where that cannot be had, at the lowest priority,
/// with which a thread that has waited for long is preferred for a moment.
fn run_when_idle(can_be_idle: bool) {
    rustix::process::setpriority_process(None, 19).expect("a lower priority");
    if can_be_idle {
        let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
        let mut command = Command::new("chrt");
        let asked = command.args(["--idle", "--pid", "0", &thread]).status();
        assert!(
            asked.is_ok_and(|status| status.success()),
            "chrt is refused"
        );
    }
}

/// Percentiles of latencies that are in order.
fn shown(all: &[Duration]) -> String {
    let at = |per_mille: usize| all[all.len() * per_mille / 1000];
    format!(
        "p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, p99.9 {:.1?} of {} puts",
        at(500),
        at(900),
        at(990),
        at(999),
        all.len()
    )
}

/// Puts until it is answered. On a machine that does much else members may lose their leader for a moment, and refuse.
fn answered(raw: &mut Raw, key: &str, value: &[u8]) {
    let begun = Instant::now();
    while try_put(raw, key, value).is_none() {
        assert!(
            begun.elapsed() < ANSWERED_WITHIN,
            "a put of {key} is refused"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Puts for so long; how long each took, in order. Each is answered, or this fails.
fn latencies(raw: &mut Raw, length: Duration, mut each: impl FnMut()) -> Vec<Duration> {
    let begun = Instant::now();
    let mut all = Vec::new();
    while begun.elapsed() < length {
        let before = Instant::now();
        answered(raw, "good", b"value");
        all.push(before.elapsed());
        each();
    }
    all.sort();
    all
}
