//! Memory of freed adjacency lists, for the lists that are loaded next.
//!
//! New memory is cleared by the kernel, which takes longer than to decode lists into it.

use std::sync::{Arc, Mutex, PoisonError};

use grappa_io::{Result, arena::Arena};

/// Arenas that are not used.
#[derive(Debug, Default)]
pub(crate) struct SpareArenas(Mutex<Vec<Arena>>);

impl SpareArenas {
    /// An arena of `bytes`, which may have any value.
    ///
    /// # Errors
    /// If the kernel refuses the address space.
    pub fn take(&self, bytes: usize) -> Result<Arena> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Lists of several partitions have about the same length, heads and sources have not.
        let is_similar =
            |arena: &Arena| arena.len() <= bytes.saturating_mul(2) && bytes <= arena.len().saturating_mul(2);
        if let Some(at) = spare.iter_mut().position(|arena| is_similar(arena) && arena.resize(bytes)) {
            return Ok(spare.swap_remove(at));
        }
        // None fits. Spare memory beside new memory could exceed the budget.
        spare.clear();
        drop(spare);
        // Address space takes no memory until it is touched.
        let mut arena = Arena::new(bytes.saturating_add(bytes / 4))?;
        arena.resize(bytes);
        Ok(arena)
    }

    /// Gives all memory back to the system.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// An arena that becomes a spare one when it is dropped.
#[derive(Debug)]
pub(super) struct ReturnedArena {
    /// Present until it is dropped.
    arena: Option<Arena>,
    spare: Option<Arc<SpareArenas>>,
}

impl ReturnedArena {
    /// An arena of `bytes`, which may have any value, from `spare` if that is given.
    ///
    /// # Errors
    /// If the kernel refuses the address space.
    pub fn new(bytes: usize, spare: Option<&Arc<SpareArenas>>) -> Result<Self> {
        let arena = match spare {
            Some(spare) => spare.take(bytes)?,
            None => Arena::new(bytes)?,
        };
        Ok(Self { arena: Some(arena), spare: spare.cloned() })
    }
}

impl std::ops::Deref for ReturnedArena {
    type Target = Arena;

    #[inline]
    fn deref(&self) -> &Arena {
        self.arena.as_ref().expect("it is not dropped")
    }
}

impl std::ops::DerefMut for ReturnedArena {
    fn deref_mut(&mut self) -> &mut Arena {
        self.arena.as_mut().expect("it is not dropped")
    }
}

impl Drop for ReturnedArena {
    fn drop(&mut self) {
        if let (Some(arena), Some(spare)) = (self.arena.take(), &self.spare) {
            spare.0.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
        }
    }
}
