//! Puts libtorch's folder on the program's run path, so that it starts without LD_LIBRARY_PATH.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let lib = std::env::var("DEP_GRAPPA_TRAINER_LIBTORCH_LIB").expect("the trainer's build script names it");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{lib}");
}
