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
            Some(_) => "{prefix} {wide_bar} {human_pos}/{human_len} {per_sec:.0} {eta} left {msg}",
            None => "{prefix} {spinner} {human_pos} {per_sec:.0} {msg}",
        };
        Progress::drawn_as(template, target(quiet), title, total)
    }

    fn drawn_to(target: ProgressDrawTarget, title: &str, total: Option<u64>) -> Progress {
        let template = match total {
            Some(_) => {
                "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} \
                 {eta} left {msg}"
            }
            None => "{prefix} {spinner} {binary_bytes} {binary_bytes_per_sec} {msg}",
        };
        Progress::drawn_as(template, target, title, total)
    }

    /// The bar of a template takes what the rest leaves of the line (`wide_bar`): a line that is longer than the
    /// terminal wraps, and each step then prints a new one.
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
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

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

    /// A terminal that remembers what was written to it.
    #[derive(Debug, Clone)]
    struct Terminal {
        width: u16,
        written: Arc<Mutex<Vec<String>>>,
    }

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            self.width
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.written.lock().unwrap().push(text.to_owned());
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The bar of an import wrapped at 80 columns, and left a line behind for each step.
    #[test]
    fn a_bar_fits_into_the_terminal() {
        for width in [80, 140] {
            let terminal = Terminal {
                width,
                written: Arc::default(),
            };
            let written = terminal.written.clone();
            let target = ProgressDrawTarget::term_like(Box::new(terminal));
            let progress = Progress::drawn_to(target, "import", Some(123_456_789_000));
            progress.remark("12345 refused");
            progress.add(45_678_901_234);
            progress.bar.tick();
            drop(progress);
            let written = written.lock().unwrap();
            let lines = written.iter().flat_map(|text| text.lines());
            let widths: Vec<_> = lines.map(|line| line.trim_end().chars().count()).collect();
            let widest = *widths.iter().max().unwrap();
            assert!(widest > 60, "it was drawn: {written:?}");
            assert!(widest <= usize::from(width), "{written:?}");
        }
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
            "{prefix} {wide_bar} {binary_bytes}/{binary_total_bytes}",
            "{spinner}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }
}
