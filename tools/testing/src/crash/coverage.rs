//! The number of tried crash states, out of all.

use std::fmt;

/// The kinds of crash image; see the module's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ImageKind {
    /// Nothing is lost.
    Prefix,
    /// Everything pending is lost.
    LostAll,
    /// One pending operation is lost.
    MissingOne,
    /// One pending operation is kept.
    OnlyOne,
    /// Two pending operations are lost.
    Pair,
    /// A write is torn at 512 bytes.
    Torn512,
    /// A write is torn at 4,096 bytes.
    Torn4096,
    /// A write leaves garbage in some of its sectors of 512 bytes, or in all.
    Garbage,
    /// A random combination, by a seed.
    Random,
}

impl ImageKind {
    /// All kinds, in the order in which they are tried at a point.
    pub const ALL: [ImageKind; 9] = [
        ImageKind::Prefix,
        ImageKind::LostAll,
        ImageKind::MissingOne,
        ImageKind::OnlyOne,
        ImageKind::Pair,
        ImageKind::Torn512,
        ImageKind::Torn4096,
        ImageKind::Garbage,
        ImageKind::Random,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ImageKind::Prefix => "prefix",
            ImageKind::LostAll => "lost-all",
            ImageKind::MissingOne => "missing-one",
            ImageKind::OnlyOne => "only-one",
            ImageKind::Pair => "pair",
            ImageKind::Torn512 => "torn512",
            ImageKind::Torn4096 => "torn4096",
            ImageKind::Garbage => "garbage",
            ImageKind::Random => "random",
        }
    }
}

/// The numbers of yielded and existing images of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Coverage {
    pub(super) tried: [u64; ImageKind::ALL.len()],
    pub(super) existing: [u64; ImageKind::ALL.len()],
    pub(super) points_tried: u64,
    pub(super) points: u64,
}

impl Coverage {
    /// Yielded images of one kind.
    #[must_use]
    pub fn tried(&self, kind: ImageKind) -> u64 {
        self.tried[kind as usize]
    }

    /// Existing images of one kind.
    #[must_use]
    pub fn existing(&self, kind: ImageKind) -> u64 {
        self.existing[kind as usize]
    }

    /// Yielded images of all kinds.
    #[must_use]
    pub fn total_tried(&self) -> u64 {
        self.tried.iter().sum()
    }

    /// Existing images of all kinds.
    #[must_use]
    pub fn total_existing(&self) -> u64 {
        self.existing.iter().sum()
    }

    /// Points of the recording with at least one yielded image.
    #[must_use]
    pub fn points_tried(&self) -> u64 {
        self.points_tried
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} crash images at {} of {} points:",
            self.total_tried(),
            self.total_existing(),
            self.points_tried,
            self.points
        )?;
        for (position, kind) in ImageKind::ALL.into_iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(
                f,
                "{comma} {} {}/{}",
                kind.name(),
                self.tried(kind),
                self.existing(kind)
            )?;
        }
        Ok(())
    }
}
