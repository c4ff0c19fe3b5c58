//! Quotas of prefixes: what the keys below a prefix may take, and what they take.

/// What the keys that begin with a prefix may take. At least one of both is limited.
///
/// ```
/// use bowline_types::QuotaLimits;
///
/// let limits = QuotaLimits { keys: Some(1_000), bytes: None };
/// assert!(!limits.is_empty() && QuotaLimits::default().is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaLimits {
    /// The most keys; `None` is any number.
    pub keys: Option<u64>,
    /// The most bytes of the keys and their newest values; `None` is any number.
    pub bytes: Option<u64>,
}

impl QuotaLimits {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_none() && self.bytes.is_none()
    }
}

/// What the keys that begin with a prefix take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaUse {
    /// The keys.
    pub keys: u64,
    /// The bytes of the keys and their newest values. Older versions do not count.
    pub bytes: u64,
}

/// The quota of a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The prefix; empty for all keys.
    pub prefix: Vec<u8>,
    /// What its keys may take.
    pub limits: QuotaLimits,
    /// What they take.
    pub used: QuotaUse,
}
