//! Runs a fuzz target in libFuzzer; `cargo xtask fuzz` starts it.
//!
//! `GRAPPA_FUZZ_TARGET` names the target. With `GRAPPA_FUZZ_PREPARE`, the program instead writes the seeds and words of
//! all targets into this folder: `TARGET/seeds` and `TARGET/words`, a dictionary of libFuzzer, if there are words.

#![no_main]

use std::{
    env, fs, io, panic,
    path::Path,
    process,
    sync::{LazyLock, Mutex, PoisonError},
};

use grappa_fuzz::{Target, promises, scratch::Scratch, targets};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// One mutant in this number keeps its checksums, because their check is a target too.
const UNREPAIRED: u32 = 8;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = env::var("GRAPPA_FUZZ_TARGET").expect("GRAPPA_FUZZ_TARGET names a target");
    let target = targets::all().into_iter().find(|target| target.name == name);
    target.unwrap_or_else(|| panic!("no target is called {name}"))
});

thread_local! {
    // libFuzzer calls from one thread. When the process ends, the folder is removed.
    static SCRATCH: Scratch = Scratch::new();
}

/// The message and place of the last panic.
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fuzz_target!(
    init: prepare(),
    |bytes: &[u8]| {
        let ran = panic::catch_unwind(|| SCRATCH.with(|scratch| promises::run(&TARGET, bytes, scratch)));
        if ran.is_err() {
            eprintln!("{}", LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner));
            process::abort();
        }
    }
);

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if !seed.is_multiple_of(UNREPAIRED) {
        TARGET.repair.apply(&mut data[..size]);
    }
    size
});

/// Writes seeds and words and ends the process, if that is all it is to do. Else keeps the messages of panics.
fn prepare() {
    if let Some(folder) = env::var_os("GRAPPA_FUZZ_PREPARE") {
        for target in targets::all() {
            write_seeds(&target, &Path::new(&folder).join(target.name)).expect("seeds can be written");
        }
        process::exit(0);
    }
    // The hook of libfuzzer-sys aborts at panics that readers catch and turn into errors, such as panics of the Parquet crate.
    panic::set_hook(Box::new(|info| {
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
}

fn write_seeds(target: &Target, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join("seeds"))?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(folder.join("seeds").join(number.to_string()), seed)?;
    }
    if target.words.is_empty() {
        // libFuzzer refuses an empty dictionary.
        return Ok(());
    }
    let lines: String = target.words.iter().map(|word| dictionary_line(word)).collect();
    fs::write(folder.join("words"), lines)
}

fn dictionary_line(word: &str) -> String {
    let bytes: String = word.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{bytes}\"\n")
}
