//! The requests of a load: encoded once, then only their keys change.
//!
//! Keys are the number of the key in hexadecimal, with zeros before it. So all have one length, which
//! makes every request as long as the next, and they can be read. A block's id is such a key, of 16 digits.
//! Ids of leases are so large that each has four bytes.

use bowline_client::ReadLevel;
use bowline_proto::etcdserverpb::request_op::Request;
use bowline_proto::etcdserverpb::{
    LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use bytes::Bytes;
use prost::Message;

use super::wire::Target;
use crate::args::Load;
use crate::error::{Error, Result};

/// What all requests of a run look like.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) target: Target,
    /// A request with its prefix of gRPC.
    template: Vec<u8>,
    /// Where keys stand in it.
    keys_at: Vec<usize>,
    key_bytes: usize,
    key_space: u64,
    is_sequential: bool,
    /// How far the next key of a request is from the one before, and where that begins anew.
    step: u64,
    modulus: u64,
    /// Whether each key of a request is chosen by itself, and may be one of the others.
    is_independent: bool,
    /// How many writes a request is.
    pub(crate) operations: u64,
    /// What an answer is to have in it; one that has not is counted.
    pub(crate) expects: Expected,
    /// What every second request is instead.
    other: Option<Box<Workload>>,
    /// Whether a number is written as the id of a lease, and not as a key.
    is_of_leases: bool,
}

/// What an answer is to have in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Nothing,
    /// A key.
    Rows,
    /// Time that a lease has left.
    Time,
}

/// The first id of a lease. It and those that follow have four bytes.
const LEASE_FIRST: i64 = 1 << 21;
/// How long leases live. Longer than a row.
const LEASE_SECONDS: i64 = 600;

/// The seed of keys and values. Fixed, so that runs can be compared.
const SEED: u64 = 0xDEAD_BEEF_CAFE_BABE;

impl Workload {
    pub(crate) fn puts(args: &Load) -> Result<Workload> {
        let target = Target {
            path: "/etcdserverpb.KV/Put",
            metadata: None,
        };
        Workload::new(args, target, 1, |keys| {
            put(&keys[0], args.val_size).encode_to_vec()
        })
    }

    pub(crate) fn transactions(args: &Load, operations: u32) -> Result<Workload> {
        let count = usize::try_from(operations.max(1)).unwrap_or(usize::MAX);
        if u64::from(operations) > args.key_space_size {
            let text = "a transaction cannot put more keys than there are".to_owned();
            return Err(Error::Usage(text));
        }
        let target = Target {
            path: "/etcdserverpb.KV/Txn",
            metadata: None,
        };
        Workload::new(args, target, count, |keys| {
            let put = |key: &Bytes| RequestOp {
                request: Some(Request::RequestPut(put(key, args.val_size))),
            };
            let txn = TxnRequest {
                success: keys.iter().map(put).collect(),
                ..TxnRequest::default()
            };
            txn.encode_to_vec()
        })
    }

    pub(crate) fn reads(args: &Load, consistency: ReadLevel) -> Result<Workload> {
        let is_lease = consistency == ReadLevel::Lease;
        let target = Target {
            path: "/etcdserverpb.KV/Range",
            metadata: is_lease.then_some(("bowline-read", "lease")),
        };
        let workload = Workload::new(args, target, 1, |keys| {
            let range = RangeRequest {
                key: keys[0].clone(),
                serializable: consistency == ReadLevel::Eventual,
                ..RangeRequest::default()
            };
            range.encode_to_vec()
        })?;
        Ok(Workload {
            expects: Expected::Rows,
            ..workload
        })
    }

    /// Puts and linearizable reads by turns.
    pub(crate) fn puts_and_reads(args: &Load) -> Result<Workload> {
        let reads = Workload::reads(args, ReadLevel::Linearizable)?;
        Ok(Workload {
            other: Some(Box::new(reads)),
            ..Workload::puts(args)?
        })
    }

    /// Grants as many leases as there are keys.
    pub(crate) fn grants(args: &Load) -> Result<Workload> {
        Workload::of_leases(args, "/etcdserverpb.Lease/LeaseGrant", |lease| {
            let grant = LeaseGrantRequest {
                ttl: LEASE_SECONDS,
                id: lease,
            };
            grant.encode_to_vec()
        })
    }

    /// Keeps those leases alive, each time by a call of its own.
    pub(crate) fn keep_alives(args: &Load) -> Result<Workload> {
        let workload = Workload::of_leases(args, "/etcdserverpb.Lease/LeaseKeepAlive", |lease| {
            LeaseKeepAliveRequest { id: lease }.encode_to_vec()
        })?;
        Ok(Workload {
            expects: Expected::Time,
            ..workload
        })
    }

    fn of_leases(
        args: &Load,
        path: &'static str,
        encode: impl Fn(i64) -> Vec<u8>,
    ) -> Result<Workload> {
        // With another byte at each place, as long.
        const OTHER: i64 = 2 << 21 | 0x55 << 14 | 0x55 << 7 | 0x55;
        let target = Target {
            path,
            metadata: None,
        };
        let encode = |keys: &[Bytes]| match keys[0].first() {
            Some(b'1') => encode(OTHER),
            _ => encode(LEASE_FIRST),
        };
        let args = &Load {
            key_size: 4,
            ..args.clone()
        };
        let workload = Workload::new(args, target, 1, encode)?;
        Ok(Workload {
            is_of_leases: true,
            ..workload
        })
    }

    /// Linearizable reads of so many keys in a row.
    pub(crate) fn ranges(args: &Load, keys: u64) -> Result<Workload> {
        let key_space = args.key_space_size.saturating_sub(keys);
        if key_space == 0 {
            let text = format!("there are no {keys} keys in a row");
            return Err(Error::Usage(text));
        }
        let target = Target {
            path: "/etcdserverpb.KV/Range",
            metadata: None,
        };
        let workload = Workload::new(args, target, 2, |keys| {
            let range = RangeRequest {
                key: keys[0].clone(),
                range_end: keys[1].clone(),
                ..RangeRequest::default()
            };
            range.encode_to_vec()
        })?;
        Ok(Workload {
            expects: Expected::Rows,
            operations: 1,
            key_space,
            step: keys,
            modulus: args.key_space_size + 1,
            ..workload
        })
    }

    /// Requests of the graph with so many ids, each at random.
    pub(crate) fn of_graph(
        args: &Load,
        path: &'static str,
        ids: usize,
        expects: Expected,
        encode: impl Fn(&[Bytes]) -> Vec<u8>,
    ) -> Result<Workload> {
        let target = Target {
            path,
            metadata: None,
        };
        Ok(Workload {
            is_independent: true,
            operations: 1,
            expects,
            ..Workload::new(args, target, ids, encode)?
        })
    }

    fn new(
        args: &Load,
        target: Target,
        keys: usize,
        encode: impl Fn(&[Bytes]) -> Vec<u8>,
    ) -> Result<Workload> {
        let digits = u32::try_from(args.key_size.min(16)).unwrap_or(16);
        let fits = digits == 16 || args.key_space_size <= 1_u64 << (4 * digits);
        if args.key_size == 0 || !fits {
            let text = format!(
                "{} keys do not fit into {} hexadecimal digits: raise --key-size",
                args.key_space_size, args.key_size
            );
            return Err(Error::Usage(text));
        }
        // Where two encodings with different keys differ, there the keys are.
        let with = |byte: u8| encode(&vec![Bytes::from(vec![byte; args.key_size]); keys]);
        let (body, other) = (with(b'0'), with(b'1'));
        let differs = |at: &usize| body[*at] != other[*at];
        let at: Vec<usize> = (0..body.len()).filter(differs).collect();
        let mut template = vec![0];
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        template.extend_from_slice(&length.to_be_bytes());
        let keys_at = at
            .chunks(args.key_size)
            .map(|key| key[0] + template.len())
            .collect();
        template.extend_from_slice(&body);
        Ok(Workload {
            target,
            template,
            keys_at,
            key_bytes: args.key_size,
            key_space: args.key_space_size,
            is_sequential: args.sequential_keys,
            step: 1,
            modulus: args.key_space_size,
            is_independent: false,
            operations: 1,
            expects: Expected::Nothing,
            other: None,
            is_of_leases: false,
        })
        .map(|workload| Workload {
            operations: u64::try_from(keys).unwrap_or(1),
            ..workload
        })
    }

    /// What all requests are for.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let other = self.other.iter().flat_map(|other| other.targets());
        std::iter::once(self.target.clone()).chain(other).collect()
    }

    /// What the request of this number in the run is, and which of the targets it is for.
    pub(crate) fn of_request(&self, number: u64) -> (&Workload, usize) {
        match &self.other {
            Some(other) if number % 2 == 1 => (other, 1),
            _ => (self, 0),
        }
    }

    /// The bytes of a request, with its prefix of gRPC.
    pub(crate) fn request_bytes(&self) -> usize {
        self.template.len()
    }

    /// Writes the request of this number in the run.
    pub(crate) fn write(&self, out: &mut Vec<u8>, keys: &mut Keys, number: u64) {
        let start = out.len();
        out.extend_from_slice(&self.template);
        let mut key = keys.next(self, number);
        for at in &self.keys_at {
            let bytes = &mut out[start + at..start + at + self.key_bytes];
            match self.is_of_leases {
                true => write_lease(bytes, key),
                false => write_key(bytes, key),
            }
            key = if self.is_independent {
                keys.next(self, number)
            } else {
                // Of one transaction, all keys differ.
                (key + self.step) % self.modulus
            };
        }
    }
}

/// Writes a key as its hexadecimal digits.
fn write_key(bytes: &mut [u8], key: u64) {
    let mut rest = key;
    for digit in bytes.iter_mut().rev().take(16) {
        *digit = b"0123456789abcdef"[usize::try_from(rest & 15).unwrap_or(0)];
        rest >>= 4;
    }
}

/// Writes the id of a lease as a varint.
fn write_lease(bytes: &mut [u8], lease: u64) {
    let mut rest = LEASE_FIRST.unsigned_abs() + lease;
    let last = bytes.len() - 1;
    for (at, byte) in bytes.iter_mut().enumerate() {
        let more = if at < last { 0x80 } else { 0 };
        *byte = u8::try_from(rest & 0x7f).unwrap_or(0) | more;
        rest >>= 7;
    }
}

fn put(key: &Bytes, value_bytes: usize) -> PutRequest {
    PutRequest {
        key: key.clone(),
        value: value(value_bytes).into(),
        ..PutRequest::default()
    }
}

/// A value of this many letters, always the same.
pub(crate) fn value(bytes: usize) -> Vec<u8> {
    let mut random = Random(SEED);
    let letters = (0..bytes).map(|_| b'a' + u8::try_from(random.next() % 26).unwrap_or(0));
    letters.collect()
}

/// Chooses keys.
pub(crate) struct Keys {
    random: Random,
}

impl Keys {
    /// The `index`-th of those that choose keys in one run.
    pub(crate) fn new(index: u64) -> Keys {
        Keys {
            random: Random::of(index),
        }
    }

    /// The first key of a request, by its number in the run.
    fn next(&mut self, workload: &Workload, number: u64) -> u64 {
        let choice = if workload.is_sequential {
            number.wrapping_mul(workload.operations)
        } else {
            self.random.next()
        };
        choice % workload.key_space
    }
}

/// Marsaglia's xorshift: quick, and random enough to choose keys.
pub(crate) struct Random(u64);

impl Random {
    /// The `index`-th of those that choose keys in one run.
    pub(crate) fn of(index: u64) -> Random {
        Random(SEED ^ (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // Multiplied, so that the low bits are as good as the high ones.
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        load: Load,
    }

    fn load(line: &str) -> Load {
        let words = format!("put {line}");
        Words::try_parse_from(words.split_whitespace())
            .unwrap()
            .load
    }

    fn message(workload: &Workload, keys: &mut Keys, number: u64) -> Vec<u8> {
        let mut out = b"before".to_vec();
        workload.write(&mut out, keys, number);
        let body = out.split_off(6 + 5);
        assert_eq!(out[7..11], u32::try_from(body.len()).unwrap().to_be_bytes());
        assert_eq!(body.len() + 5, workload.request_bytes());
        body
    }

    #[test]
    fn a_load_without_options_is_the_default() {
        assert_eq!(format!("{:?}", load("")), format!("{:?}", Load::default()));
    }

    #[test]
    fn requests_differ_in_their_keys_only() {
        let args = load("--sequential-keys --key-size 4 --val-size 300 --key-space-size 3");
        let workload = Workload::puts(&args).unwrap();
        let mut keys = Keys::new(0);
        for (number, expected) in ["0000", "0001", "0002", "0000"].into_iter().enumerate() {
            let body = message(&workload, &mut keys, number as u64);
            let put = PutRequest::decode(&body[..]).unwrap();
            assert_eq!((put.key, put.value.len()), (expected.into(), 300));
        }
    }

    #[test]
    fn puts_and_reads_take_turns() {
        let args = load("--sequential-keys --key-size 4 --key-space-size 9");
        let workload = Workload::puts_and_reads(&args).unwrap();
        let paths = workload.targets();
        for number in 0..4 {
            let (one, target) = workload.of_request(number);
            let body = message(one, &mut Keys::new(0), number);
            let key = match number % 2 {
                0 => PutRequest::decode(&body[..]).unwrap().key,
                _ => RangeRequest::decode(&body[..]).unwrap().key,
            };
            assert_eq!(key, format!("000{number}"));
            let method = ["/etcdserverpb.KV/Put", "/etcdserverpb.KV/Range"][target];
            assert_eq!(paths[target].path, method);
            assert_eq!(target as u64, number % 2);
        }
    }

    #[test]
    fn each_lease_is_granted_and_kept_alive() {
        let args = load("--sequential-keys --key-space-size 10000");
        let grants = Workload::grants(&args).unwrap();
        let renewals = Workload::keep_alives(&args).unwrap();
        for number in [0, 1, 127, 128, 9_999, 10_000] {
            let id = LEASE_FIRST + number as i64 % 10_000;
            let grant = message(&grants, &mut Keys::new(0), number);
            let grant = LeaseGrantRequest::decode(&grant[..]).unwrap();
            assert_eq!((grant.id, grant.ttl), (id, LEASE_SECONDS));
            let renewal = message(&renewals, &mut Keys::new(0), number);
            assert_eq!(LeaseKeepAliveRequest::decode(&renewal[..]).unwrap().id, id);
        }
    }

    #[test]
    fn a_transaction_puts_different_keys() {
        let workload = Workload::transactions(&load("--key-size 20"), 5).unwrap();
        let txn = TxnRequest::decode(&message(&workload, &mut Keys::new(3), 0)[..]).unwrap();
        let keys: std::collections::BTreeSet<_> = txn
            .success
            .iter()
            .map(|operation| match &operation.request {
                Some(Request::RequestPut(put)) => put.key.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(keys.len(), 5);
        assert!(keys.iter().all(|key| key.len() == 20));
    }

    #[test]
    fn a_range_has_as_many_keys_as_were_asked_for() {
        let args = load("--key-space-size 1000 --key-size 8");
        let workload = Workload::ranges(&args, 100).unwrap();
        let mut keys = Keys::new(0);
        let number = |key: &[u8]| u64::from_str_radix(std::str::from_utf8(key).unwrap(), 16);
        for _ in 0..1000 {
            let range = RangeRequest::decode(&message(&workload, &mut keys, 0)[..]).unwrap();
            let (first, end) = (
                number(&range.key).unwrap(),
                number(&range.range_end).unwrap(),
            );
            assert!(end - first == 100 && end <= 1000, "{first} to {end}");
        }
        assert!(Workload::ranges(&load("--key-space-size 100"), 100).is_err());
    }

    #[test]
    fn the_ends_of_an_edge_are_chosen_by_themselves() {
        let args = load("--key-size 16 --key-space-size 4");
        let workload = Workload::of_graph(&args, "/", 2, Expected::Nothing, |ids| {
            [&ids[0][..], &ids[1][..]].concat()
        });
        let (workload, mut keys) = (workload.unwrap(), Keys::new(0));
        let pairs: std::collections::BTreeSet<_> = (0..400)
            .map(|number| message(&workload, &mut keys, number))
            .collect();
        assert_eq!(pairs.len(), 16, "every pair of four");
    }

    #[test]
    fn keys_that_do_not_fit_are_refused() {
        for line in ["--key-size 0", "--key-size 2 --key-space-size 257"] {
            assert!(matches!(Workload::puts(&load(line)), Err(Error::Usage(_))));
        }
        assert!(Workload::puts(&load("--key-size 2 --key-space-size 256")).is_ok());
    }

    #[test]
    fn random_keys_spread() {
        let workload = Workload::reads(&load("--key-space-size 16"), ReadLevel::Eventual).unwrap();
        let mut keys = Keys::new(0);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..1_600 {
            let body = message(&workload, &mut keys, 0);
            let range = RangeRequest::decode(&body[..]).unwrap();
            assert!(range.serializable);
            *counts.entry(range.key).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 16);
        assert!(
            counts.values().all(|count| (50..200).contains(count)),
            "{counts:?}"
        );
    }
}
