//! A progress bar on standard error, for people only.
//!
//! It is drawn if standard error is a terminal and `--quiet` was not given. Otherwise every call
//! does nothing, so that logs and scripts never see half-drawn bars. Results go to standard output
//! and are not touched by it.

use std::io::{self, IsTerminal, Read};

use bowline::text::line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Where a bar is drawn.
fn target(quiet: bool) -> ProgressDrawTarget {
    if quiet || !io::stderr().is_terminal() {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    }
}

/// A progress bar, or nothing.
#[derive(Debug, Clone)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shows how much of `total` bytes is done; only how much is done if the total is unknown, as
    /// it is for a pipe.
    #[must_use]
    pub fn bytes(title: &str, total: Option<u64>, quiet: bool) -> Progress {
        Progress::drawn_to(target(quiet), title, total)
    }

    /// Shows how many of `total` operations are done; only how many are done if there is no total.
    #[must_use]
    pub fn operations(title: &str, total: Option<u64>, quiet: bool) -> Progress {
        let template = match total {
            Some(_) => "{prefix} {bar:32} {human_pos}/{human_len} {per_sec:.0} {eta} left {msg}",
            None => "{prefix} {spinner} {human_pos} {per_sec:.0} {msg}",
        };
        Progress::drawn_as(template, target(quiet), title, total)
    }

    fn drawn_to(target: ProgressDrawTarget, title: &str, total: Option<u64>) -> Progress {
        let template = match total {
            Some(_) => {
                "{prefix} {bar:32} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} \
                 {eta} left {msg}"
            }
            None => "{prefix} {spinner} {binary_bytes} {binary_bytes_per_sec} {msg}",
        };
        Progress::drawn_as(template, target, title, total)
    }

    fn drawn_as(
        template: &str,
        target: ProgressDrawTarget,
        title: &str,
        total: Option<u64>,
    ) -> Progress {
        let bar = ProgressBar::with_draw_target(total, target);
        // A template that does not parse is a bug that a test finds; the default still draws.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(title.to_owned());
        Progress { bar }
    }

    /// Counts what is read through `input`. Put it below the buffer, not above.
    pub fn reading<R: Read>(&self, input: R) -> impl Read + use<R> {
        self.bar.wrap_read(input)
    }

    /// Adds to what is done.
    pub fn add(&self, count: u64) {
        self.bar.inc(count);
    }

    /// Shows a remark behind the bar, such as how many items were refused.
    pub fn remark(&self, text: impl AsRef<str>) {
        self.bar.set_message(line(text.as_ref()).into_owned());
    }

    /// Prints a line above the bar, without tearing it. Goes to standard error, also where no bar
    /// is drawn.
    pub fn line(&self, text: &str) {
        let text = line(text);
        if self.bar.is_hidden() {
            eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }

    /// How many bytes are done.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn done_bytes(&self) -> u64 {
        self.bar.position()
    }
}

impl Drop for Progress {
    /// Takes the bar away, so that an error message does not land behind it.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_read_through_it() {
        let progress = Progress::drawn_to(ProgressDrawTarget::hidden(), "import", Some(5));
        let mut text = String::new();
        progress
            .reading(b"12345".as_slice())
            .read_to_string(&mut text)
            .unwrap();
        progress.add(2);
        assert_eq!((text.as_str(), progress.done_bytes()), ("12345", 7));
    }

    #[test]
    fn both_templates_are_understood() {
        for total in [Some(5), None] {
            let progress = Progress::drawn_to(ProgressDrawTarget::hidden(), "import", total);
            progress.remark("2 refused");
            assert_eq!(progress.bar.prefix(), "import");
            assert_eq!(progress.bar.message(), "2 refused");
        }
        for template in [
            "{prefix} {bar:32} {binary_bytes}/{binary_total_bytes}",
            "{spinner}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
