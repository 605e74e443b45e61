//! What `tch` does not bind: loading libtorch's CUDA half, and asking for libtorch's version. All of the trainer's
//! `unsafe` is here.

#![expect(unsafe_code, reason = "calls into the dynamic loader and libtorch's C interface")]

use std::{error::Error, mem};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

// SAFETY: declared in libtorch's torch/csrc/inductor/aoti_torch/c/shim.h as `uint64_t aoti_torch_abi_version()`; it
// returns a constant.
unsafe extern "C" {
    safe fn aoti_torch_abi_version() -> u64;
}

/// The version of the libtorch that was loaded: major, minor, patch. (The headers' TORCH_ABI_VERSION: a byte each, from
/// the top.)
pub(crate) fn libtorch_version() -> [u8; 3] {
    let [major, minor, patch, ..] = aoti_torch_abi_version().to_be_bytes();
    [major, minor, patch]
}

/// Loads libtorch_cuda.so from where libtorch itself was found, and keeps it for the life of the process. Its static
/// initialisers register the CUDA kernels, so it must be loaded before libtorch is first asked for CUDA.
///
/// # Errors
/// What the dynamic loader said: usually the name of a library that is not installed.
pub(crate) fn load_cuda() -> Result<(), String> {
    // SAFETY: the library is libtorch's own and was built together with the libtorch_cpu.so that is loaded, which is what
    // its initialisers expect; PyTorch loads it in the same way. It is never unloaded.
    let library = unsafe { Library::open(Some("libtorch_cuda.so"), RTLD_NOW | RTLD_GLOBAL) };
    library.map(mem::forget).map_err(|error| match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    })
}
