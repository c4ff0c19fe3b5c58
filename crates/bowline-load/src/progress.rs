//! [`Progress`]: the display of the progress of a load.

/// The progress of a part of a load. It is over when this is dropped.
pub trait Progress {
    /// So many more steps are done.
    fn add(&self, count: u64);

    /// What is going on, in a few words.
    fn remark(&self, text: &str);
}

/// Begins to show a part: its title, and how many steps it has, if that is known.
pub type Show<'a> = &'a dyn Fn(&str, Option<u64>) -> Box<dyn Progress>;

/// Shows nothing.
pub(crate) fn hidden(_: &str, _: Option<u64>) -> Box<dyn Progress> {
    struct Hidden;
    impl Progress for Hidden {
        fn add(&self, _: u64) {}

        fn remark(&self, _: &str) {}
    }
    Box::new(Hidden)
}
