//! Tests of opening, verifying and describing stores.

mod open;
mod sample;
mod verify;
