//! Tags of reads: small numbers, however many reads there are in all.

/// A value for each read that waits or is in flight. There are as many entries as there are reads at the same time.
#[derive(Debug)]
pub(crate) struct Tags<T> {
    entries: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Tags<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Tags<T> {
    /// Adds a value, and returns the tag for its read.
    pub(crate) fn add(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[index] = Some(value);
        index as u64
    }

    /// The value of a tag that is in use.
    pub(crate) fn get_mut(&mut self, tag: u64) -> &mut T {
        self.entries[tag as usize].as_mut().expect("a tag in use")
    }

    /// Removes the value of the read with this tag. The tag may then be reused.
    ///
    /// # Panics
    /// If no read in flight has the tag.
    pub(crate) fn remove(&mut self, tag: u64) -> T {
        let index = tag as usize;
        let value = self.entries.get_mut(index).and_then(Option::take);
        self.free.push(index);
        value.expect("a read completes once, with the tag that it was submitted with")
    }
}
