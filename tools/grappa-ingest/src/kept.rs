//! What a run that is ended leaves.

use std::path::Path;

use grappa_console::signals;
use grappa_engine::ingest::{kept_in, partial_folder};

/// A signal ends the program at once, and says what is kept of the unfinished store.
pub fn tell_what_is_kept(out: &Path) {
    let partial = partial_folder(out);
    signals::ends_at_once(move || {
        let kept = partial.exists().then(|| kept_in(&partial))?;
        Some(format!("what is finished is kept in {kept}: rerun with --resume to continue"))
    });
}
