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
    ///
    /// ```
    /// assert!(bowline_types::QuotaLimits::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_none() && self.bytes.is_none()
    }
}

/// What the keys that begin with a prefix take.
///
/// ```
/// use bowline_types::QuotaUse;
///
/// // A key of four bytes with a value of five.
/// let used = QuotaUse { keys: 1, bytes: 9 };
/// assert!(used != QuotaUse::default());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaUse {
    /// The keys.
    pub keys: u64,
    /// The bytes of the keys and their newest values. Older versions do not count.
    pub bytes: u64,
}

/// The quota of a prefix.
///
/// ```
/// use bowline_types::{Quota, QuotaLimits, QuotaUse};
///
/// let is_full = |quota: &Quota| quota.limits.keys.is_some_and(|most| quota.used.keys >= most);
/// let quota = Quota {
///     prefix: b"tenants/blue/".to_vec(),
///     limits: QuotaLimits { keys: Some(10), bytes: None },
///     used: QuotaUse { keys: 10, bytes: 400 },
/// };
/// assert!(is_full(&quota));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// The prefix; empty for all keys.
    pub prefix: Vec<u8>,
    /// What its keys may take.
    pub limits: QuotaLimits,
    /// What they take.
    pub used: QuotaUse,
}
