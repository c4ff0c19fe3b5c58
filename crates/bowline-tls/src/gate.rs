//! [`Gate`]: how many handshakes are under way.
//!
//! A handshake costs memory and a signature before anybody is known. When as many are under way as may be, a new one
//! takes the place of the oldest one of the address that has the most: whoever opens handshakes by the thousand pushes
//! out its own, and others are served.
//!
//! Invariant: no more handshakes are under way than the limit; each leaves when it ends, in any way.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Gate {
    max: usize,
    state: Mutex<State>,
    /// How many had to leave for others.
    pub(crate) evicted: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// The oldest one first.
    entered: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    address: IpAddr,
    evict: Arc<Notify>,
}

/// The place of a handshake.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    number: u64,
    evict: Arc<Notify>,
}

impl Gate {
    pub(crate) fn new(max: usize) -> Gate {
        Gate {
            max: max.max(1),
            state: Mutex::default(),
            evicted: AtomicU64::new(0),
        }
    }

    /// Begins a handshake.
    pub(crate) fn enter(&self, address: IpAddr) -> Turn<'_> {
        let mut state = self.state.lock();
        if state.entered.len() >= self.max {
            state.evict();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        let number = state.next;
        state.next += 1;
        let evict = Arc::new(Notify::new());
        state.entered.push_back(Entry {
            number,
            address,
            evict: evict.clone(),
        });
        Turn {
            gate: self,
            number,
            evict,
        }
    }

    /// How many are under way.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().entered.len()
    }
}

impl State {
    fn evict(&mut self) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for entry in &self.entered {
            *counts.entry(entry.address).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or_default();
        let at = { self.entered.iter() }.position(|entry| counts[&entry.address] == most);
        if let Some(entry) = at.and_then(|at| self.entered.remove(at)) {
            entry.evict.notify_one();
        }
    }
}

impl Turn<'_> {
    /// Returns when this handshake has to leave.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let entered = &mut self.gate.state.lock().entered;
        // They are in the order of their numbers.
        if let Ok(at) = entered.binary_search_by_key(&self.number, |entry| entry.number) {
            entered.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    async fn is_evicted(turn: &Turn<'_>) -> bool {
        tokio::select! {
            biased;
            () = turn.evicted() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn the_address_with_the_most_loses_its_oldest() {
        let gate = Gate::new(3);
        let other = gate.enter(address(2));
        let first = gate.enter(address(1));
        let second = gate.enter(address(1));
        assert_eq!(gate.count(), 3);
        let third = gate.enter(address(1));
        assert_eq!(gate.count(), 3);
        assert!(is_evicted(&first).await);
        for turn in [&other, &second, &third] {
            assert!(!is_evicted(turn).await);
        }
        // Another address comes in, too.
        let fresh = gate.enter(address(3));
        assert!(is_evicted(&second).await && !is_evicted(&other).await);
        drop((first, second));
        assert_eq!(
            gate.count(),
            3,
            "those that were pushed out had left already"
        );
        drop((other, third, fresh));
        assert_eq!(gate.count(), 0);
    }
}
