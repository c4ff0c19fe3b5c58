//! Rates: requests per second and scanned bytes per second of each principal.
//!
//! The *principal* of a call is its user, or the address of its client while authentication is disabled and for calls
//! without a known user. Each one has two token buckets, which hold what it may do in one second:
//!
//! | bucket | looked at | charged |
//! |---|---|---|
//! | requests | before any work | one for each call, at its beginning |
//! | scanned bytes | before any work: it must not be in debt | with what a reply has shown, afterwards |
//!
//! A bucket is one number, the time at which it is full again ("generic cell rate algorithm"): a charge moves it ahead by
//! `amount / rate`, and a call is admitted while it is at most one second ahead of the clock. So a reply of any size is
//! made, and the debt delays the next calls of its principal.
//!
//! Calls of health checks and reflection are not limited; those of root are, like those of any user, and those of other
//! members do not come this way.
//!
//! Invariants:
//!
//! - Within any span of `t` seconds a principal begins at most `rate * (t + 1)` calls, but for one.
//! - The buckets of at most [`PRINCIPALS_MAX`] principals are held. Full ones leave, as a new bucket is full, too; any
//!   principals beyond that share one pair of buckets.
//! - Without the settings a call looks at one `Option`.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bowline_replica::Session;
use parking_lot::Mutex;

use crate::metrics::Counter;
use crate::status::Fault;

/// The most principals of a kind whose buckets are held.
const PRINCIPALS_MAX: usize = 1 << 16;
/// What a bucket holds: that of one second.
const BURST: Duration = Duration::from_secs(1);
/// Full buckets are looked for at most so often.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// What a key that is visited without being sent counts for, as in a count.
pub(crate) const UNSENT_KEY_BYTES: u64 = 64;

/// The rates of each principal; 0 is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimits {
    /// Requests per second.
    pub requests: u64,
    /// Scanned bytes per second.
    pub scanned_bytes: u64,
}

/// Who is charged for a call.
#[derive(Clone)]
pub(crate) enum Principal {
    User(Arc<Session>),
    Address(IpAddr),
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::User(session) => write!(f, "user {:?}", session.user()),
            Principal::Address(address) => write!(f, "client {address}"),
        }
    }
}

/// The part of an address that belongs to one client: of IPv6, a client has at least a network of 64 bits.
pub(crate) fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
        },
        address => address,
    }
}

/// The two buckets of a principal: when each is full again, since the beginning.
#[derive(Debug, Clone, Copy, Default)]
struct Buckets {
    requests: Duration,
    scanned_bytes: Duration,
}

impl Buckets {
    fn are_full(&self, now: Duration) -> bool {
        self.requests <= now && self.scanned_bytes <= now
    }

    /// Admits a call, or says which limit is exceeded, and for how long.
    fn admit(&mut self, limits: RateLimits, now: Duration) -> Result<(), (Exceeded, Duration)> {
        let wait = |full_again: Duration| full_again.checked_sub(now + BURST);
        if limits.scanned_bytes > 0
            && let Some(wait) = wait(self.scanned_bytes).filter(|wait| !wait.is_zero())
        {
            return Err((Exceeded::ScannedBytes, wait));
        }
        if limits.requests > 0 {
            let charged = self.requests.max(now) + time_of(1, limits.requests);
            if let Some(wait) = wait(charged).filter(|wait| !wait.is_zero()) {
                return Err((Exceeded::Requests, wait));
            }
            self.requests = charged;
        }
        Ok(())
    }

    fn charge(&mut self, limits: RateLimits, bytes: u64, now: Duration) {
        if limits.scanned_bytes > 0 {
            let time = time_of(bytes, limits.scanned_bytes);
            self.scanned_bytes = self.scanned_bytes.max(now).saturating_add(time);
        }
    }
}

/// How long a rate takes for an amount.
fn time_of(amount: u64, rate: u64) -> Duration {
    let nanos = u128::from(amount) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Which limit a call exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exceeded {
    Requests,
    ScannedBytes,
}

/// The buckets of the principals of one kind.
#[derive(Debug)]
struct Held<K> {
    of_each: HashMap<K, Buckets>,
    /// Those of all principals for which there is no room.
    of_others: Buckets,
    swept: Duration,
}

impl<K> Default for Held<K> {
    fn default() -> Held<K> {
        Held {
            of_each: HashMap::new(),
            of_others: Buckets::default(),
            swept: Duration::ZERO,
        }
    }
}

impl<K: Hash + Eq> Held<K> {
    /// Full buckets leave.
    fn sweep(&mut self, now: Duration) {
        self.swept = now;
        self.of_each.retain(|_, buckets| !buckets.are_full(now));
    }

    fn of<Q>(&mut self, key: &Q, now: Duration) -> &mut Buckets
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if !self.of_each.contains_key(key) {
            if self.of_each.len() >= PRINCIPALS_MAX && now >= self.swept + SWEEP_INTERVAL {
                self.sweep(now);
            }
            if self.of_each.len() >= PRINCIPALS_MAX {
                return &mut self.of_others;
            }
        }
        self.of_each.entry(key.to_owned()).or_default()
    }
}

#[derive(Debug, Default)]
struct Principals {
    users: Held<String>,
    addresses: Held<IpAddr>,
}

impl Principals {
    fn of(&mut self, principal: &Principal, now: Duration) -> &mut Buckets {
        match principal {
            Principal::User(session) => self.users.of(session.user(), now),
            Principal::Address(address) => self.addresses.of(address, now),
        }
    }
}

/// The rates of a server that has limits.
#[derive(Debug)]
pub(crate) struct Rates {
    limits: RateLimits,
    begun: Instant,
    principals: Mutex<Principals>,
    /// Calls that were refused for the number of requests.
    pub(crate) refused_requests: Counter,
    /// Calls that were refused for scanned bytes.
    pub(crate) refused_scanned_bytes: Counter,
}

impl Rates {
    /// `None` without limits.
    pub(crate) fn new(limits: RateLimits) -> Option<Arc<Rates>> {
        (limits != RateLimits::default()).then(|| {
            Arc::new(Rates {
                limits,
                begun: Instant::now(),
                principals: Mutex::default(),
                refused_requests: Counter::default(),
                refused_scanned_bytes: Counter::default(),
            })
        })
    }

    /// How many principals have buckets that are not full: they have made calls lately.
    pub(crate) fn principals(&self, now: Instant) -> usize {
        let now = now.saturating_duration_since(self.begun);
        let mut principals = self.principals.lock();
        principals.users.sweep(now);
        principals.addresses.sweep(now);
        principals.users.of_each.len() + principals.addresses.of_each.len()
    }

    /// Admits a call of a principal.
    ///
    /// # Errors
    /// `RateExceeded`.
    pub(crate) fn admit(&self, principal: &Principal, now: Instant) -> Result<(), Fault> {
        let now = now.saturating_duration_since(self.begun);
        let mut principals = self.principals.lock();
        let admitted = principals.of(principal, now).admit(self.limits, now);
        drop(principals);
        let Err((exceeded, wait)) = admitted else {
            return Ok(());
        };
        let (limit, what, setting, counter) = match exceeded {
            Exceeded::Requests => (
                self.limits.requests,
                "requests",
                "max-requests-per-second",
                &self.refused_requests,
            ),
            Exceeded::ScannedBytes => (
                self.limits.scanned_bytes,
                "scanned bytes",
                "max-scanned-bytes-per-second",
                &self.refused_scanned_bytes,
            ),
        };
        counter.add(1);
        // Rounded up: who waits for so long is admitted.
        let wait_ms = wait.as_micros().div_ceil(1_000);
        Err(Fault::RateExceeded(format!(
            "bowline: rate exceeded: {principal} may have {limit} {what} per second (--{setting}): try again in {wait_ms} ms"
        )))
    }

    /// Charges a principal for the bytes of a reply.
    pub(crate) fn charge(&self, principal: &Principal, bytes: u64) {
        if self.limits.scanned_bytes == 0 || bytes == 0 {
            return;
        }
        let now = self.begun.elapsed();
        let mut principals = self.principals.lock();
        principals
            .of(principal, now)
            .charge(self.limits, bytes, now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn rates(requests: u64, scanned_bytes: u64) -> Rates {
        let limits = RateLimits {
            requests,
            scanned_bytes,
        };
        Arc::into_inner(Rates::new(limits).unwrap()).unwrap()
    }

    fn client(number: u32) -> Principal {
        Principal::Address(IpAddr::V4(Ipv4Addr::from(number)))
    }

    fn after(rates: &Rates, ms: u64) -> Instant {
        rates.begun + Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_of_a_second_then_the_rate_and_the_refusal_says_when() {
        let rates = rates(10, 0);
        let calls = |rates: &Rates, who, ms| {
            let admitted = |_: &u32| rates.admit(&client(who), after(rates, ms)).is_ok();
            (0..100).take_while(admitted).count()
        };
        assert_eq!(calls(&rates, 1, 0), 10);
        assert_eq!(calls(&rates, 2, 0), 10, "another one is not concerned");
        assert_eq!(calls(&rates, 1, 99), 0);
        assert_eq!(calls(&rates, 1, 100), 1);
        assert_eq!(calls(&rates, 1, 650), 5);
        assert_eq!(
            calls(&rates, 1, 60_000),
            10,
            "no more than a burst is saved"
        );
        let Err(Fault::RateExceeded(text)) = rates.admit(&client(1), after(&rates, 60_050)) else {
            panic!("it has used its burst");
        };
        assert_eq!(
            text,
            "bowline: rate exceeded: client 0.0.0.1 may have 10 requests per second \
             (--max-requests-per-second): try again in 50 ms"
        );
        assert!(rates.admit(&client(1), after(&rates, 60_100)).is_ok());
        assert!(rates.refused_requests.get() > 0 && rates.refused_scanned_bytes.get() == 0);
    }

    #[test]
    fn a_debt_of_bytes_delays_the_next_call() {
        let rates = rates(0, 1_000);
        let admitted = |ms| rates.admit(&client(1), after(&rates, ms));
        assert!(admitted(0).is_ok());
        let mut buckets = rates.principals.lock();
        let now = Duration::ZERO;
        buckets.of(&client(1), now).charge(rates.limits, 5_000, now);
        drop(buckets);
        let Err(Fault::RateExceeded(text)) = admitted(1_000) else {
            panic!("it is in debt");
        };
        for part in [
            "1000 scanned bytes",
            "try again in 3000 ms",
            "--max-scanned-bytes-per-second",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(rates.admit(&client(2), after(&rates, 0)).is_ok());
        assert!(admitted(4_000).is_ok());
    }

    #[test]
    fn the_principals_are_bounded_and_idle_ones_leave() {
        let rates = rates(1, 0);
        let now = Instant::now();
        for number in 0..PRINCIPALS_MAX as u32 {
            assert!(rates.admit(&client(number), now).is_ok());
        }
        assert_eq!(rates.principals(now), PRINCIPALS_MAX);
        // The others share their buckets meanwhile.
        assert!(rates.admit(&client(u32::MAX), now).is_ok());
        assert!(rates.admit(&client(u32::MAX - 1), now).is_err());
        assert_eq!(rates.principals(now), PRINCIPALS_MAX);
        let later = now + Duration::from_secs(3);
        assert!(rates.admit(&client(u32::MAX), later).is_ok());
        assert_eq!(rates.principals(later), 1);
    }

    /// All were counted that had made a call since the start, as long as there was room for more.
    #[test]
    fn principals_that_are_idle_are_not_counted() {
        let rates = rates(1, 0);
        let now = Instant::now();
        for number in 0..10 {
            assert!(rates.admit(&client(number), now).is_ok());
        }
        let later = now + Duration::from_secs(3);
        assert!(rates.admit(&client(3), later).is_ok());
        assert_eq!(rates.principals(later), 1);
    }

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        let of = |text: &str| client_of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8::1:2"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
    }
}
