//! Parsers for the values of settings.

use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::jwt::JwtOptions;
use crate::settings::MetricNames;
use crate::url::{Url, parse_url};

/// A comma-separated list of at least one URL.
pub(super) fn url_list(text: &str) -> Result<Vec<Url>, String> {
    text.split(',').map(|url| parse_url(url.trim())).collect()
}

/// Members as `name=url`, comma-separated. A member with several URLs is listed several times.
pub(super) fn members(text: &str) -> Result<Vec<(String, String)>, String> {
    let member = |part: &str| {
        let (name, url) = part
            .trim()
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not NAME=URL"))?;
        if name.is_empty() {
            return Err(format!("{part:?} has no name"));
        }
        Ok((name.to_owned(), parse_url(url)?.to_string()))
    };
    text.split(',').map(member).collect()
}

/// A whole number.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    plain
        .parse()
        .map_err(|_| format!("{text:?} is not a whole number from 0 on"))
}

/// A duration: milliseconds, or numbers with units as in `1h30m`, `10s`, `250ms`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time like 100 (milliseconds), 250ms, 10s, 5m or 2h");
    if let Ok(ms) = text.parse() {
        return Ok(Duration::from_millis(ms));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.len() - rest.trim_start_matches(char::is_alphabetic).len();
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(unit_ms).map(Duration::from_millis);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(wrong)?;
    }
    if text.is_empty() {
        Err(wrong())
    } else {
        Ok(total)
    }
}

/// The interval of progress notifications. As in etcd, 0 is the default, and the least is 100 ms.
pub(super) fn progress_interval(text: &str) -> Result<Duration, String> {
    const DEFAULT: Duration = Duration::from_secs(600);
    const LEAST: Duration = Duration::from_millis(100);
    let interval = duration(text)?;
    Ok(match interval.is_zero() {
        true => DEFAULT,
        false => interval.max(LEAST),
    })
}

/// The time of a token: seconds, as in etcd, or a time with units. At least a second.
pub(super) fn token_ttl(text: &str) -> Result<Duration, String> {
    let ttl = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => duration(text)?,
    };
    match ttl >= Duration::from_secs(1) {
        true => Ok(ttl),
        false => Err(format!("{text:?} is less than a second")),
    }
}

/// The kind of tokens: `simple`, or `jwt` with its options.
pub(super) fn auth_token(text: &str) -> Result<Option<JwtOptions>, String> {
    match text.split_once(',').unwrap_or((text, "")) {
        ("simple", "") => Ok(None),
        ("jwt", options) => JwtOptions::parse(options, token_ttl).map(Some),
        _ => Err(format!(
            "{text:?} is neither simple nor jwt,priv-key=FILE,sign-method=NAME"
        )),
    }
}

/// A time as Go writes it: numbers with units, also with fractions, as in `1h30m` or `1.5h`.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, unit) = rest.split_at(rest.find(|c| !is_of_number(c))?);
        let (unit, after) = unit.split_at(unit.find(is_of_number).unwrap_or(unit.len()));
        rest = after;
        let unit_ns: u64 = match unit {
            "ns" => 1,
            // The micro sign, and the Greek letter.
            "us" | "\u{B5}s" | "\u{3BC}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        let digits: u128 = digits.parse().ok()?;
        let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let ns = digits.checked_mul(u128::from(unit_ns))? / scale;
        total = total.checked_add(Duration::from_nanos(u64::try_from(ns).ok()?))?;
    }
    Some(total)
}

/// The position of a text in a list of allowed texts.
pub(super) fn one_of(text: &str, all: &[&str]) -> Result<usize, String> {
    let place = all.iter().position(|one| *one == text);
    place.ok_or_else(|| format!("{text:?} is not one of {}", all.join(", ")))
}

/// The names that `/metrics` uses: a comma-separated list, or one of etcd's values, which say how much etcd counts.
pub(super) fn metric_names(text: &str) -> Result<MetricNames, String> {
    if let "basic" | "extensive" = text {
        return Ok(MetricNames::ALL);
    }
    let mut names = MetricNames {
        of_etcd: false,
        of_bowline: false,
    };
    for name in text.split(',') {
        match one_of(name.trim(), &["etcd", "bowline"])? {
            0 => names.of_etcd = true,
            _ => names.of_bowline = true,
        }
    }
    Ok(names)
}

/// A log level.
pub(super) fn level(text: &str) -> Result<LevelFilter, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not one of off, error, warn, info, debug, trace"))
}
