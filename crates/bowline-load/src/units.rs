//! Durations and sizes as people write them: `500ms`, `1h`, `64MiB`.
//!
//! A number is a run of decimal digits, with a fraction if wanted (`1.5h`), followed by a unit
//! without a space between them (one is tolerated). A unit is always asked for in a duration,
//! because `--timeout 30` means milliseconds to some and seconds to others. A size without a
//! unit is in bytes. All arithmetic is exact: a value that does not come out as whole
//! nanoseconds or bytes, or does not fit, is refused rather than rounded.

use std::time::Duration;

/// Units of a duration, in nanoseconds.
const DURATION_UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];

/// Units of a size, in bytes. Compared without regard to case.
const SIZE_UNITS: &[(&str, u128)] = &[
    ("", 1),
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Parses a duration: `500ms`, `30s`, `5m`, `1h`, `1.5h`, `7d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let help = "write a number and a unit: ns, us, ms, s, m, h or d, as in 500ms or 30s";
    let (number, unit) = split(text).ok_or_else(|| format!("not a duration: {help}"))?;
    if unit.is_empty() {
        return Err(format!("the unit is missing: {help}"));
    }
    let (_, scale) = DURATION_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("unknown unit {unit:?}: {help}"))?;
    let nanos = scaled(number, *scale)?;
    let seconds =
        u64::try_from(nanos / 1_000_000_000).map_err(|_| "the duration is too long".to_owned())?;
    // The remainder is below a thousand million, so it fits.
    let rest = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
    Ok(Duration::new(seconds, rest))
}

/// Parses a size in bytes: `4096`, `64MiB`, `1.5GB`. `K`, `M`, `G` and `T` count in 1,024s, as
/// `KiB` to `TiB` do; `KB` to `TB` count in 1,000s.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let help = "write a number of bytes, or one with KiB, MiB, GiB, TiB, KB, MB, GB or TB";
    let (number, unit) = split(text).ok_or_else(|| format!("not a size: {help}"))?;
    let unit = unit.to_ascii_lowercase();
    let (_, scale) = SIZE_UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("unknown unit {unit:?}: {help}"))?;
    u64::try_from(scaled(number, *scale)?).map_err(|_| "the size is too large".to_owned())
}

/// Writes a duration with the largest unit that gives a whole number: `500ms`, `90s`, `2h`.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    // `µs` stands after `us`, and days and hours read better than seconds only when they are
    // whole, so the last unit that divides is the one to show; `us` is skipped in its favour.
    let (name, scale) = DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, scale)| nanos.is_multiple_of(*scale))
        .unwrap_or(&DURATION_UNITS[0]);
    format!("{}{name}", nanos / scale)
}

/// Writes a size with a binary unit and at most one decimal: `512 B`, `1.5 MiB`.
#[must_use]
pub fn show_size(bytes: u64) -> String {
    let mut scale = 1_u64;
    let mut name = "B";
    for (next, step) in [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ] {
        if bytes >= step {
            scale = step;
            name = next;
        }
    }
    if scale == 1 {
        return format!("{bytes} B");
    }
    let tenths = u128::from(bytes) * 10 / u128::from(scale);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

/// Splits into digits (with at most one point) and the rest, if it starts with a digit.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    Some((&text[..end], text[end..].trim_start()))
}

/// `number * scale`, exactly.
fn scaled(number: &str, scale: u128) -> Result<u128, String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.contains('.') && (fraction.is_empty() || fraction.contains('.')) {
        return Err(format!("{number:?} is not a number"));
    }
    let too_large = || format!("{number} is too large");
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let mut total = whole.checked_mul(scale).ok_or_else(too_large)?;
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        let exact = || format!("{number} has more decimals than the unit has parts");
        let digits = u32::try_from(fraction.len()).map_err(|_| exact())?;
        let divisor = 10_u128.checked_pow(digits).ok_or_else(exact)?;
        let parts: u128 = fraction.parse().map_err(|_| exact())?;
        let product = parts.checked_mul(scale).ok_or_else(exact)?;
        if !product.is_multiple_of(divisor) {
            return Err(exact());
        }
        total = total.checked_add(product / divisor).ok_or_else(too_large)?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_every_unit_and_fractions() {
        for (text, nanos) in [
            ("7ns", 7),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("500ms", 500_000_000),
            ("30s", 30_000_000_000),
            ("5m", 300_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("7d", 604_800_000_000_000),
            ("0.250s", 250_000_000),
            (" 2 s ", 2_000_000_000),
        ] {
            assert_eq!(
                parse_duration(text).map(|d| d.as_nanos()),
                Ok(nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_refuse_what_is_ambiguous_or_lossy() {
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "1.s",
            "1.2.3s",
            "1 fortnight",
            "0.5ns",
            "99999999999999999999999999999999999999999s",
            "99999999999999999999999999d",
            "1e3s",
            "٣s",
        ] {
            assert!(parse_duration(text).is_err(), "{text:?} was taken");
        }
        assert!(
            parse_duration("30")
                .unwrap_err()
                .contains("unit is missing")
        );
    }

    #[test]
    fn sizes_tell_binary_from_decimal_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64k", 65_536),
            ("64kb", 64_000),
            ("1.5GB", 1_500_000_000),
            ("1.5MiB", 1_572_864),
            ("2 TiB", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1.5", "1XB", "-1", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn shown_durations_parse_back() {
        for millis in [0, 1, 500, 1_000, 90_000, 3_600_000, 86_400_000, 86_400_001] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
        assert_eq!(show_duration(Duration::from_secs(90)), "90s");
        assert_eq!(show_duration(Duration::from_secs(7_200)), "2h");
        assert_eq!(show_duration(Duration::from_nanos(1_500)), "1500ns");
    }

    #[test]
    fn sizes_are_shown_with_one_decimal() {
        assert_eq!(show_size(0), "0 B");
        assert_eq!(show_size(1023), "1023 B");
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(u64::MAX), "16777215.9 TiB");
    }
}
