//! Checks that libtorch is there and is the version that `tch` binds, and puts its folder on the run path of the tests
//! here. Programs do the same with what this script tells them.

use std::{env, fs, path::Path};

const VERSION: &str = "2.11.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    // .cargo/config.toml sets it, for builds from anywhere in the checkout.
    let Ok(libtorch) = env::var("LIBTORCH") else {
        println!("cargo::error=LIBTORCH is not set: build inside the checkout, after `cargo xtask setup`");
        return;
    };
    match header_version(Path::new(&libtorch)) {
        Some(version) if version == VERSION => {}
        Some(version) => {
            println!("cargo::error={libtorch} is libtorch {version}, needed is {VERSION}: run `cargo xtask setup`")
        }
        None => println!("cargo::error=no libtorch in {libtorch}: run `cargo xtask setup`"),
    }
    println!("cargo::metadata=libtorch_lib={libtorch}/lib");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
}

/// The version that the headers name; `None` if there are no headers.
fn header_version(libtorch: &Path) -> Option<String> {
    let header = libtorch.join("include/torch/headeronly/version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let text = fs::read_to_string(header).ok()?;
    let part = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix("#define TORCH_VERSION_")?.strip_prefix(name))
            .map(str::trim)
    };
    Some(format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?))
}
