//! [`Rights`]: what the roles of a user allow, merged into spans.
//!
//! Invariant: the spans of a [`Spans`] are in order, none is empty, and no two of them touch. So a range is allowed exactly
//! when one span contains it, which a binary search finds without an allocation.

use bowline_core::trees::prefix_end;

/// Reading, or writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

/// Which accesses a permission grants, by etcd's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Grant {
    /// Reading.
    Read = 0,
    /// Writing.
    Write = 1,
    /// Both.
    ReadWrite = 2,
}

impl Grant {
    /// Whether it includes an access.
    #[must_use]
    pub fn includes(self, access: Access) -> bool {
        match self {
            Grant::Read => access == Access::Read,
            Grant::Write => access == Access::Write,
            Grant::ReadWrite => true,
        }
    }
}

/// A permission of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// On a range of keys.
    Keys {
        /// What it grants.
        grant: Grant,
        /// The key, or the first key of the range.
        key: Vec<u8>,
        /// As in etcd: empty for the key alone, `[0]` for every key from `key` on, otherwise the first key beyond the
        /// range.
        range_end: Vec<u8>,
    },
    /// On the blocks and edges of kinds.
    Kinds {
        /// What it grants.
        grant: Grant,
        /// The names of the kinds begin with it; empty is all, and blocks without a kind.
        prefix: String,
    },
}

impl Permission {
    /// What it grants.
    #[must_use]
    pub fn grant(&self) -> Grant {
        match self {
            Permission::Keys { grant, .. } | Permission::Kinds { grant, .. } => *grant,
        }
    }

    /// Whether both are on the same keys or kinds.
    pub(crate) fn is_on_the_same(&self, other: &Permission) -> bool {
        match (self, other) {
            (
                Permission::Keys { key, range_end, .. },
                Permission::Keys {
                    key: key_of_other,
                    range_end: end_of_other,
                    ..
                },
            ) => key == key_of_other && range_end == end_of_other,
            (
                Permission::Kinds { prefix, .. },
                Permission::Kinds {
                    prefix: of_other, ..
                },
            ) => prefix == of_other,
            (Permission::Keys { .. }, Permission::Kinds { .. })
            | (Permission::Kinds { .. }, Permission::Keys { .. }) => false,
        }
    }

    /// Whether a role may have it: its range has a first key, and ends behind it.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        match self {
            Permission::Keys { key, range_end, .. } => {
                let has_end = range_end.is_empty() || range_end == &[0] || key < range_end;
                !key.is_empty() && has_end
            }
            Permission::Kinds { .. } => true,
        }
    }
}

/// The end of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Before(Vec<u8>),
    None,
}

/// Disjoint spans of byte strings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<(Vec<u8>, End)>);

impl Spans {
    fn add(&mut self, start: Vec<u8>, end: End) {
        let is_empty = matches!(&end, End::Before(end) if *end <= start);
        if !is_empty {
            self.0.push((start, end));
        }
    }

    /// Sorts and merges what was added.
    fn merge(&mut self) {
        self.0.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut merged: Vec<(Vec<u8>, End)> = Vec::with_capacity(self.0.len());
        for (start, end) in self.0.drain(..) {
            match merged.last_mut() {
                Some((_, End::None)) => break,
                Some((_, End::Before(last))) if start <= *last => {
                    if let End::Before(end) = &end
                        && *end <= *last
                    {
                        continue;
                    }
                    if let Some((_, of_last)) = merged.last_mut() {
                        *of_last = end;
                    }
                }
                _ => merged.push((start, end)),
            }
        }
        self.0 = merged;
    }

    /// The span that a first key is in.
    fn around(&self, start: &[u8]) -> Option<&End> {
        let behind = self.0.partition_point(|(first, _)| &first[..] <= start);
        let (_, end) = self.0.get(behind.checked_sub(1)?)?;
        match end {
            End::Before(end) if &end[..] <= start => None,
            end => Some(end),
        }
    }

    /// Whether one of them has the whole range, given as in etcd. An empty range needs its first key.
    fn contains(&self, key: &[u8], range_end: &[u8]) -> bool {
        match (self.around(key), range_end) {
            (None, _) => false,
            (Some(End::None), _) => true,
            (Some(End::Before(_)), []) => true,
            (Some(End::Before(_)), [0]) => false,
            (Some(End::Before(end)), range_end) => range_end <= &end[..],
        }
    }
}

/// How far an access is allowed from a key on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowed<'a> {
    /// Not at the key itself.
    No,
    /// Up to a key, which is behind the first one.
    Before(&'a [u8]),
    /// To every key behind it.
    ToTheEnd,
}

/// What the roles of a user allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rights {
    is_root: bool,
    /// By [`Access`].
    keys: [Spans; 2],
    kinds: [Spans; 2],
}

const ACCESSES: [Access; 2] = [Access::Read, Access::Write];

impl Rights {
    /// The rights of permissions.
    pub(crate) fn of<'a>(
        is_root: bool,
        permissions: impl Iterator<Item = &'a Permission>,
    ) -> Rights {
        let mut rights = Rights {
            is_root,
            ..Rights::default()
        };
        for permission in permissions {
            for access in ACCESSES {
                if !permission.grant().includes(access) {
                    continue;
                }
                let of = access as usize;
                match permission {
                    Permission::Keys { key, range_end, .. } => {
                        let end = match &range_end[..] {
                            [] => End::Before([key, &[0][..]].concat()),
                            [0] => End::None,
                            end => End::Before(end.to_vec()),
                        };
                        rights.keys[of].add(key.clone(), end);
                    }
                    Permission::Kinds { prefix, .. } => {
                        let end = prefix_end(prefix.as_bytes()).map_or(End::None, End::Before);
                        rights.kinds[of].add(prefix.as_bytes().to_vec(), end);
                    }
                }
            }
        }
        for spans in rights.keys.iter_mut().chain(&mut rights.kinds) {
            spans.merge();
        }
        rights
    }

    /// Whether everything is allowed.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.is_root
    }

    /// Whether an access to all keys of a range is allowed. The range is given as in etcd.
    pub(crate) fn allows_keys(&self, access: Access, key: &[u8], range_end: &[u8]) -> bool {
        self.is_root || self.keys[access as usize].contains(key, range_end)
    }

    /// How far an access is allowed from a key on, without a gap.
    pub(crate) fn allowed_from(&self, access: Access, key: &[u8]) -> Allowed<'_> {
        if self.is_root {
            return Allowed::ToTheEnd;
        }
        match self.keys[access as usize].around(key) {
            None => Allowed::No,
            Some(End::Before(end)) => Allowed::Before(end),
            Some(End::None) => Allowed::ToTheEnd,
        }
    }

    /// Whether an access to blocks or edges of a kind is allowed; `None` is all kinds, and blocks without one.
    pub(crate) fn allows_kind(&self, access: Access, kind: Option<&str>) -> bool {
        let spans = &self.kinds[access as usize];
        self.is_root
            || match kind {
                Some(kind) => spans.contains(kind.as_bytes(), &[]),
                None => spans.contains(&[], &[0]),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(grant: Grant, key: &str, range_end: &str) -> Permission {
        Permission::Keys {
            grant,
            key: key.into(),
            range_end: range_end.into(),
        }
    }

    #[test]
    fn ranges_that_touch_are_one_and_gaps_stay() {
        let all = [
            keys(Grant::Read, "a", "c"),
            keys(Grant::ReadWrite, "c", "e"),
            keys(Grant::Read, "g", ""),
            keys(Grant::Read, "b", "d"),
        ];
        let rights = Rights::of(false, all.iter());
        let reads =
            |key: &str, end: &str| rights.allows_keys(Access::Read, key.as_bytes(), end.as_bytes());
        assert!(reads("a", "e") && reads("b", "") && reads("d\u{ff}", "") && reads("g", ""));
        assert!(reads("g", "g\0"));
        assert!(!reads("a", "f") && !reads("e", "") && !reads("g", "h") && !reads("a", "\0"));
        assert!(!reads("", "b") && !reads("f", ""));
        assert!(rights.allows_keys(Access::Write, b"c", b"e"));
        assert!(!rights.allows_keys(Access::Write, b"b", b"d"));
        // What is empty needs its first key: a request for it must not be a way around the rights.
        assert!(reads("b", "a") && !reads("f", "a"));
    }

    #[test]
    fn a_range_to_the_end_needs_one_to_the_end() {
        let to_end = [
            keys(Grant::Read, "m", "\0"),
            keys(Grant::Read, "x", "y"),
            keys(Grant::Read, "c", "f"),
        ];
        let rights = Rights::of(false, to_end.iter());
        assert!(rights.allows_keys(Access::Read, b"m", b"\0"));
        assert!(rights.allows_keys(Access::Read, b"z", b"\0"));
        assert!(!rights.allows_keys(Access::Read, b"l", b"\0"));
        assert!(rights.allows_keys(Access::Read, b"c", b"f"));
        assert!(!rights.allows_keys(Access::Read, b"c", b"\0"));
        assert!(!rights.allows_keys(Access::Write, b"m", b""));
    }

    #[test]
    fn kinds_are_allowed_by_prefix_and_all_of_them_by_the_empty_one() {
        let kinds = |prefix: &str| Permission::Kinds {
            grant: Grant::Read,
            prefix: prefix.to_owned(),
        };
        let some = Rights::of(false, [kinds("team/")].iter());
        assert!(some.allows_kind(Access::Read, Some("team/person")));
        assert!(!some.allows_kind(Access::Read, Some("teams")));
        assert!(!some.allows_kind(Access::Read, None));
        assert!(!some.allows_kind(Access::Write, Some("team/person")));
        assert!(!some.allows_keys(Access::Read, b"team/person", b""));
        let all = Rights::of(false, [kinds("")].iter());
        assert!(all.allows_kind(Access::Read, None));
        assert!(all.allows_kind(Access::Read, Some("x")));
    }
}
