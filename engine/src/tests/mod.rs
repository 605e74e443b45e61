//! Tests of opening, verifying, describing and exporting stores; and what others need to damage them.

mod aggregates;
mod export;
mod open;
mod place;
pub(crate) mod sample;
mod verify;
