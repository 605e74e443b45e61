//! Tests of opening, verifying, describing and exporting stores.

mod export;
mod open;
mod sample;
mod verify;
