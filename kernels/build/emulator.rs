//! Kernels for the emulator: the same files as plain C++, with the machine that runs them, in one static library.

use crate::Sources;

/// Compiles every file with the host's C++ compiler.
pub fn compile(sources: &Sources) -> Result<(), String> {
    #[cfg(feature = "emulate")]
    {
        let headers = crate::toolkit::headers()?;
        let include = |folder: &std::path::Path| folder.to_string_lossy().into_owned();
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
            .flag(format!("-isystem{}", include(&headers)))
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
    }
    let _ = sources;
    Ok(())
}
