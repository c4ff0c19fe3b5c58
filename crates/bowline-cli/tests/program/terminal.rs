//! A pseudo-terminal, for what the program does only for people.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::Place;

/// How long the program may take to show something.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The program on a terminal of its own.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    /// What the program writes, as it comes.
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    /// Starts the program on a terminal of this many columns.
    pub(crate) fn start(place: &Place, words: &[&str], columns: u16) -> Terminal {
        Terminal::start_with(place, words, columns, &[])
    }

    /// The same with variables of the environment.
    pub(crate) fn start_with(
        place: &Place,
        words: &[&str],
        columns: u16,
        variables: &[(&str, &str)],
    ) -> Terminal {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&keyboard).unwrap();
        unlockpt(&keyboard).unwrap();
        let size = Winsize {
            ws_row: 40,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&keyboard, size).unwrap();
        let name = ptsname(&keyboard, Vec::new()).unwrap();
        let open = || -> OwnedFd {
            rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap()
        };
        let child = place
            .command(words)
            .env("TERM", "xterm")
            .envs(variables.iter().copied())
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("the program starts");
        let keyboard = File::from(keyboard);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            // The last one who has the terminal open is gone: EIO.
            while let Ok(count @ 1..) = reader.read(&mut part) {
                if sender.send(part[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child,
            keyboard,
            screen,
            seen: String::new(),
        }
    }

    /// Types bytes.
    pub(crate) fn keys(&mut self, bytes: &str) {
        match self.keyboard.write_all(bytes.as_bytes()) {
            // The program has ended.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("{error}"),
            _ => {}
        }
    }

    /// Does what Ctrl-C does where the program has the terminal for itself.
    pub(crate) fn interrupt(&self) {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::INT).unwrap();
    }

    /// Waits until a text is shown, and takes everything up to its end off the screen.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(part) = self.screen.recv_timeout(left) else {
                panic!("{text:?} was not shown, but {:?}", self.seen);
            };
            self.seen.push_str(&String::from_utf8_lossy(&part));
        }
    }

    /// Waits for the end; gives what was shown last, and how it ended.
    pub(crate) fn end(mut self) -> (String, ExitStatus) {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    let _ = self.child.kill();
                    panic!("the program goes on, and shows {:?}", self.seen);
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        while let Ok(part) = self.screen.recv_timeout(TIMEOUT) {
            self.seen.push_str(&String::from_utf8_lossy(&part));
        }
        (self.seen, status)
    }
}
