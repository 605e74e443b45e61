//! Checks that the processor has the instructions that this build uses.

/// Ends the process with a message if the processor lacks instructions that this build uses.
///
/// `is_x86_feature_detected!` cannot be used: it is constant when the feature is on at compile time. The check must not use
/// the instructions that it checks for, so it calls `cpuid`, and prints through the standard library, which is compiled for
/// all processors.
#[cfg(target_arch = "x86_64")]
pub(crate) fn require_supported_processor() {
    if cfg!(target_feature = "avx2") && !has_x86_64_v3() {
        fail_unsupported();
    }
}

/// On other architectures the build uses only the baseline.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn require_supported_processor() {}

/// Whether the processor has the instructions of x86-64-v3 (Haswell, 2013; Zen, 2017) and the system keeps their
/// registers.
#[cfg(target_arch = "x86_64")]
fn has_x86_64_v3() -> bool {
    use std::arch::x86_64::__cpuid;

    // Bit numbers: Intel SDM volume 2A, CPUID.
    const LEAF_1_ECX: u32 = 1 << 0 // SSE3
        | 1 << 9 // SSSE3
        | 1 << 12 // FMA
        | 1 << 13 // CMPXCHG16B
        | 1 << 19 // SSE4.1
        | 1 << 20 // SSE4.2
        | 1 << 22 // MOVBE
        | 1 << 23 // POPCNT
        | 1 << 27 // OSXSAVE
        | 1 << 28 // AVX
        | 1 << 29; // F16C
    const LEAF_7_EBX: u32 = 1 << 3 // BMI1
        | 1 << 5 // AVX2
        | 1 << 8; // BMI2
    const LEAF_80000001_ECX: u32 = 1 << 0 // LAHF in 64-bit mode
        | 1 << 5; // LZCNT

    __cpuid(0).eax >= 7
        && __cpuid(1).ecx & LEAF_1_ECX == LEAF_1_ECX
        && __cpuid(7).ebx & LEAF_7_EBX == LEAF_7_EBX
        && __cpuid(0x8000_0001).ecx & LEAF_80000001_ECX == LEAF_80000001_ECX
}

/// A function of its own, so that none of its code runs before the check.
#[cfg(target_arch = "x86_64")]
#[cold]
#[inline(never)]
fn fail_unsupported() -> ! {
    use std::io::Write;

    // An error cannot be reported if stderr is closed.
    let _ = std::io::stderr().write_all(
        b"error: this processor lacks AVX2, BMI2 or FMA (x86-64-v3: Intel Haswell, AMD Zen, or later), which this build \
          of Grappa uses; build it yourself with RUSTFLAGS='-C target-cpu=native'\n",
    );
    std::process::exit(1)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_processor_check_agrees_with_the_kernel() {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).expect("flags of a processor");
        let all = ["avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]
            .iter()
            .all(|flag| flags.split_whitespace().any(|word| word == *flag));
        assert_eq!(has_x86_64_v3(), all);
    }
}
