//! Passwords: where they come from, and how a terminal is asked for one.
//!
//! | a password | comes from |
//! |---|---|
//! | of the user who logs in | `--user NAME:PASSWORD`, `--password`, their variables of the environment, the terminal |
//! | that is new | `NAME:PASSWORD`, a file, standard input, or the terminal, which is asked twice |
//!
//! Invariant: what is typed is not shown, and the terminal shows again what is typed afterwards.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::args::{Hidden, NewPassword};
use crate::context::{Context, usage};
use crate::exit::Failure;
use crate::streams::Streams;

/// The longest password that servers take, in bytes.
const BYTES_MAX: u64 = 4 << 10;

/// A terminal that does not show what is typed.
struct Silence(Termios);

impl Silence {
    fn begin() -> io::Result<Silence> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        // The end of the line moves the cursor all the same.
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Silence(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// The first line, without its end.
fn line_of(input: &mut dyn Read) -> Result<Hidden, Failure> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while input.read(&mut byte)? > 0 && byte[0] != b'\n' {
        bytes.push(byte[0]);
        if bytes.len() as u64 > BYTES_MAX {
            return Err(usage("a password has at most 4 KiB".to_owned()));
        }
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| usage("a password is UTF-8 text".to_owned()))?;
    if text.is_empty() {
        return Err(usage("the password is empty: give one".to_owned()));
    }
    Ok(text.into())
}

/// Asks the terminal for the password of a user who logs in.
pub(crate) fn ask(streams: &mut Streams<'_>, user: &str) -> Result<Hidden, Failure> {
    if !streams.terminal.is_input {
        return Err(usage(format!(
            "the password of {user} is missing, and there is no terminal to ask on: give --password, BOWLINE_PASSWORD \
             or --user NAME:PASSWORD"
        )));
    }
    // First, as it drops what was typed before.
    let _silence = Silence::begin()?;
    write!(streams.stderr, "Password of {user}: ")?;
    streams.stderr.flush()?;
    line_of(&mut &mut *streams.stdin)
}

/// A new password of a user.
pub(crate) fn new(
    context: &mut Context<'_, '_>,
    user: &str,
    from: &NewPassword,
) -> Result<Hidden, Failure> {
    if let Some(path) = &from.new_password_file {
        return of_file(path);
    }
    if !from.interactive {
        return line_of(&mut context.input()?);
    }
    if !context.streams.terminal.is_input {
        return Err(usage(format!(
            "there is no terminal to ask for the password of {user}: give --new-password-file FILE, or \
             --interactive=false and the password on standard input"
        )));
    }
    let first = asked(context, &format!("New password of {user}: "))?;
    let again = asked(context, &format!("New password of {user} again: "))?;
    match first == again {
        true => Ok(first),
        false => Err(usage(
            "the two passwords differ: nothing was changed".to_owned(),
        )),
    }
}

fn of_file(path: &Path) -> Result<Hidden, Failure> {
    let named = |error: io::Error| {
        let text = format!("cannot read {}: {error}", path.display());
        Failure::from(io::Error::new(error.kind(), text))
    };
    let mut file = File::open(path).map_err(named)?;
    line_of(&mut file)
}

fn asked(context: &mut Context<'_, '_>, prompt: &str) -> Result<Hidden, Failure> {
    let _silence = Silence::begin()?;
    write!(context.streams.stderr, "{prompt}")?;
    context.streams.stderr.flush()?;
    line_of(&mut context.input()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_a_line_without_its_end() {
        for input in ["a b", "a b\n", "a b\r\n", "a b\nmore"] {
            let read = line_of(&mut input.as_bytes());
            assert_eq!(
                read.map(|line| line.reveal().to_owned()),
                Ok("a b".to_owned())
            );
        }
        for input in [&b""[..], b"\n", b"\xff\n", &[b'a'; 5000]] {
            assert!(line_of(&mut &input[..]).is_err());
        }
    }
}
