//! The two settings of automatic compaction, which mean what they mean in etcd.

use std::time::Duration;

use super::parse::{go_duration, number, one_of};
use super::{ConfigError, Layers};

const MODE: &str = "auto-compaction-mode";
const RETENTION: &str = "auto-compaction-retention";

/// How much history automatic compaction keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AutoCompaction {
    /// The revisions of the last so long.
    Periodic(Duration),
    /// So many revisions.
    Revisions(u64),
}

/// A compaction is an entry of the log on each member, and a shorter retention has one every few milliseconds.
const RETENTION_MIN: Duration = Duration::from_millis(100);

/// The setting; `None` when it is off.
pub(super) fn of_layers(layers: &Layers) -> Result<Option<AutoCompaction>, ConfigError> {
    let is_revisions = layers.parse(MODE, |text| one_of(text, &["periodic", "revision"]))? == 1;
    if is_revisions {
        let revisions = layers.parse(RETENTION, |text| {
            number(text).map_err(|_| {
                format!("{text:?} is not a number of revisions, which --{MODE} revision expects")
            })
        })?;
        return Ok((revisions > 0).then_some(AutoCompaction::Revisions(revisions)));
    }
    let retention = layers.parse(RETENTION, retention)?;
    if retention.is_zero() {
        return Ok(None);
    }
    if retention < RETENTION_MIN {
        let reason = format!("it is 0 (off) or at least {RETENTION_MIN:?}");
        return Err(layers.wrong(RETENTION, reason));
    }
    Ok(Some(AutoCompaction::Periodic(retention)))
}

/// A time: a plain number is hours.
fn retention(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is not a number of hours like 8, or a time like 30m, 1h30m or 1.5h");
    match number(text) {
        Ok(hours) => hours
            .checked_mul(3600)
            .map(Duration::from_secs)
            .ok_or_else(wrong),
        Err(_) => go_duration(text).ok_or_else(wrong),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: &[(&str, &str)]) -> Result<Option<AutoCompaction>, String> {
        let mut layers = Layers::default();
        for (key, value) in flags {
            layers.add_flag(key, (*value).to_owned()).unwrap();
        }
        of_layers(&layers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_retention_is_hours_or_a_time_or_revisions() {
        let hour = Duration::from_secs(3600);
        let periodic = |time| Ok(Some(AutoCompaction::Periodic(time)));
        assert_eq!(of(&[]), Ok(None));
        for mode in ["periodic", "revision"] {
            assert_eq!(of(&[(MODE, mode), (RETENTION, "0")]), Ok(None));
        }
        assert_eq!(of(&[(RETENTION, "8")]), periodic(8 * hour));
        for (text, time) in [
            ("1h30m", hour * 3 / 2),
            ("1.5h", hour * 3 / 2),
            ("30m", hour / 2),
            ("+2s", Duration::from_secs(2)),
            (".5s", Duration::from_millis(500)),
            ("100000us", Duration::from_millis(100)),
            ("100000\u{B5}s", Duration::from_millis(100)),
            ("1s1ns", Duration::new(1, 1)),
        ] {
            assert_eq!(of(&[(RETENTION, text)]), periodic(time), "{text}");
        }
        assert_eq!(
            of(&[(MODE, "revision"), (RETENTION, "1000")]),
            Ok(Some(AutoCompaction::Revisions(1000)))
        );
    }

    #[test]
    fn a_wrong_retention_is_an_error_that_names_the_forms() {
        for text in [
            "",
            "-1",
            "-1h",
            "h",
            "1x",
            ".s",
            "1.2.3s",
            "1h5",
            "1d",
            "99999999999999999999",
        ] {
            let said = of(&[(RETENTION, text)]).unwrap_err();
            let expected = format!(
                "--{RETENTION}: {text:?} is not a number of hours like 8, or a time like 30m, 1h30m or 1.5h"
            );
            assert_eq!(said, expected);
        }
        assert_eq!(
            of(&[(RETENTION, "99ms")]),
            Err(format!("--{RETENTION}: it is 0 (off) or at least 100ms"))
        );
        assert_eq!(
            of(&[(MODE, "revision"), (RETENTION, "1h")]),
            Err(format!(
                "--{RETENTION}: \"1h\" is not a number of revisions, which --{MODE} revision expects"
            ))
        );
        assert_eq!(
            of(&[(MODE, "often")]),
            Err(format!(
                "--{MODE}: \"often\" is not one of periodic, revision"
            ))
        );
    }
}
