//! Kernels for the emulator: the same files as plain C++, with the machine that runs them, in one static library.

use crate::sources::Sources;
use crate::toolkit;

/// Compiles every file with the host's C++ compiler.
pub fn compile(sources: &Sources) -> Result<(), String> {
    let headers = toolkit::headers()?;
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .debug(false)
        .define("LIFELONG_EMULATED", None)
        // Whether a product and a sum are rounded once or twice is for the source to say.
        .flag("-ffp-contract=off")
        .flag("-fvisibility=hidden")
        // What the suffix `.cu` does not say.
        .flag("-xc++")
        .flag(format!("-isystem{}", headers.display()))
        .include(&sources.folder)
        .warnings(false)
        .files(&sources.kernels)
        .file(sources.folder.join("emulator/emulator.cpp"))
        .cargo_metadata(false)
        .try_compile("lifelong_emulated")
        .map_err(|error| error.to_string())?;
    // For the test that compiles kernels with faults.
    println!("cargo::rustc-env=LIFELONG_EMULATOR_HEADERS={}", headers.display());
    println!("cargo::rustc-link-search=native={}", sources.out.display());
    // Kernels enter their table when the program starts; nothing else names them.
    println!("cargo::rustc-link-lib=static:+whole-archive=lifelong_emulated");
    println!("cargo::rustc-link-lib=stdc++");
    Ok(())
}
