//! Users over the network: programs with the library's own client, which reach the shipped servers of all members.
//!
//! A machine of users has a place of its own on the wire, so that faults come between it and a member. All of them share
//! one runtime, whose time is the simulation's. What they do and see goes into the same history as what users of a
//! member's process do and see, and is judged with it:
//!
//! | module | who |
//! |---|---|
//! | `program` | what all of them have |
//! | `user` | writes, and runs transactions |
//! | `reads` | reads at every level: one register, all at once, and the past |
//! | `locker` | takes a lock, and writes what only its holder may write |
//! | `fence` | judges the locks |
//! | `watch` | watches all keys |
//! | `narrow` | watches one register |
//!
//! The errors are judged, too: what the client says was not done must not have been done, and it must not say of itself
//! what it says only of programs that ask for nonsense.

pub(crate) mod fence;
mod locker;
mod narrow;
pub(crate) mod program;
mod reads;
mod user;
mod watch;

use std::time::Duration;

use bowline_client::Client;

use crate::clients::KEYS;
use crate::history::History;
use crate::runtime::VirtualRuntime;
use crate::subscribers::Subscribers;
use crate::trace::Trace;
use crate::wire::Wire;
use fence::Fence;
use locker::Locker;
use narrow::NarrowWatch;
use program::{Answer, Program};
use user::User;

/// The machines of users.
pub(crate) const MACHINES: usize = 2;
/// On each: one that reads, and others that also write.
const USERS: usize = 3;

/// All machines of users.
pub(crate) struct Remotes {
    runtime: VirtualRuntime,
    programs: Vec<Program>,
    random: fastrand::Rng,
}

impl Remotes {
    /// Users of the members of so many machines, behind which theirs are on the wire.
    pub(crate) fn new(
        members: usize,
        seed: u64,
        wire: &Wire,
        history: &History,
        trace: &Trace,
        compacts: bool,
    ) -> Remotes {
        let mut random = fastrand::Rng::with_seed(seed);
        let runtime = VirtualRuntime::new();
        let programs = (0..MACHINES).map(|machine| {
            let host = wire.host(members + machine);
            // Each begins with another member.
            let endpoints =
                (0..members).map(|member| Wire::client_url((member + machine) % members));
            let builder = Client::builder()
                .endpoints(endpoints)
                .connect_timeout(Duration::from_millis(500))
                .request_timeout(Duration::from_millis(random.u64(1_000..6_000)))
                .keep_alive(Duration::from_secs(1), Duration::from_secs(1))
                .keep_alive_while_idle(true)
                .connector(move |endpoint| host.channel(endpoint));
            let _entered = runtime.enter();
            Program {
                name: format!("u{machine}"),
                client: builder.connect_lazy().expect("the endpoints are addresses"),
                history: history.clone(),
                trace: trace.clone(),
                compacts,
            }
        });
        let programs = programs.collect();
        Remotes {
            runtime,
            programs,
            random,
        }
    }

    /// Begins what the users do.
    pub(crate) fn start(
        &mut self,
        pause_max: Duration,
        subscribers: &mut Subscribers,
        fence: &Fence,
    ) {
        for program in self.programs.clone() {
            for at in 0..USERS {
                let user = User {
                    program: program.named(&at.to_string()),
                    random: self.rng(),
                    is_reader: at == 0,
                    pause_max,
                };
                self.runtime.spawn(user.run());
            }
            let locker = Locker {
                program: program.named("l"),
                fence: fence.clone(),
                random: self.rng(),
            };
            self.runtime.spawn(locker.run());
            let watch = watch::Watch {
                number: subscribers.add_remote(&program.name),
                inbox: subscribers.inbox.clone(),
                random: self.rng(),
                program: program.named("w"),
            };
            self.runtime.spawn(watch.run());
            let register = self.random.usize(0..KEYS);
            let program = program.named(&format!("r{register}"));
            let narrow = NarrowWatch {
                seen: subscribers.add_register(&program.name, register),
                random: self.rng(),
                program,
            };
            self.runtime.spawn(narrow.run());
        }
    }

    fn rng(&mut self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.random.u64(..))
    }

    /// Moves them by one step, in which they may be stopped.
    pub(crate) fn drive(&mut self, step: Duration, is_paused: bool) {
        self.runtime.pass(step);
        if !is_paused {
            self.runtime.drive(step);
        }
    }

    /// Has each look for a member that answers a linearizable read, and then a put.
    pub(crate) fn ask(&self) -> Vec<(String, Answer)> {
        let asked = self.programs.iter().map(|program| {
            let answer = Answer::default();
            let asking = program.clone().ask(answer.clone());
            self.runtime.spawn(asking);
            (program.name.clone(), answer)
        });
        asked.collect()
    }

    /// Reads everything, when nobody writes any more.
    pub(crate) fn read_all(&mut self, pause_max: Duration) {
        for program in self.programs.clone() {
            let user = User {
                program: program.named("end"),
                random: self.rng(),
                is_reader: true,
                pause_max,
            };
            self.runtime.spawn(user.read_all());
        }
    }
}
