//! Checks that libtorch is there and is the version that `tch` binds, compiles the C++ half of the shim against it, and
//! puts its folder on the run path of the tests here. Programs do the same with what this script tells them.

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
        Some(version) if version == VERSION => compile_shim(&libtorch),
        Some(version) => {
            println!("cargo::error={libtorch} is libtorch {version}, needed is {VERSION}: run `cargo xtask setup`")
        }
        None => println!("cargo::error=no libtorch in {libtorch}: run `cargo xtask setup`"),
    }
    println!("cargo::metadata=libtorch_lib={libtorch}/lib");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{libtorch}/lib");
}

/// Some twenty seconds, once.
fn compile_shim(libtorch: &str) {
    println!("cargo::rerun-if-changed=src/shim.cpp");
    println!("cargo::rerun-if-changed=src/shim");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false) // libtorch's headers have many
        .include(format!("{libtorch}/include"))
        .include(format!("{libtorch}/include/torch/csrc/api/include"))
        // Stands in for the headers of gloo, which the wheel does not have.
        .include("src/shim")
        // libtorch's parallel loops are templates: without it they would run on one thread.
        .flag("-fopenmp")
        .file("src/shim.cpp")
        .file("src/shim/c10d.cpp")
        .file("src/shim/memory.cpp")
        .compile("grappa_shim");
    // The OpenMP that libtorch brings, and no second one.
    println!("cargo::rustc-link-search=native={libtorch}/lib");
    println!("cargo::rustc-link-lib=dylib:+verbatim=libgomp.so.1");
    println!("cargo::rustc-link-lib=dylib=torch_cpu");
    println!("cargo::rustc-link-lib=dylib=c10");
}

/// The version that the headers name; `None` if there are no headers.
fn header_version(libtorch: &Path) -> Option<String> {
    let header = libtorch.join("include/torch/headeronly/version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let text = fs::read_to_string(header).ok()?;
    let [major, minor, patch] = ["MAJOR", "MINOR", "PATCH"].map(|name| {
        text.lines().find_map(|line| line.strip_prefix("#define TORCH_VERSION_")?.strip_prefix(name)).map(str::trim)
    });
    Some(format!("{}.{}.{}", major?, minor?, patch?))
}
