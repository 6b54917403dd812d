//! Compiles the kernels of `cuda/`: for GPUs with the feature `cuda`, for the emulator with `emulate`, not at all without.

#[cfg(feature = "emulate")]
mod emulator;
#[cfg(feature = "cuda")]
mod nvcc;
#[cfg(any(feature = "cuda", feature = "emulate"))]
mod sources;
#[cfg(any(feature = "cuda", feature = "emulate"))]
mod toolkit;

fn main() {
    println!("cargo::rerun-if-changed=build");
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    if let Err(problem) = compile() {
        // Cargo prints what a failed build script wrote to stderr.
        eprintln!("error: {problem}");
        std::process::exit(1);
    }
}

#[cfg(any(feature = "cuda", feature = "emulate"))]
fn compile() -> Result<(), String> {
    println!("cargo::rerun-if-changed=cuda");
    for variable in toolkit::VARIABLES {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let sources = sources::Sources::here();
    #[cfg(feature = "cuda")]
    nvcc::compile(&sources)?;
    #[cfg(feature = "emulate")]
    emulator::compile(&sources)?;
    Ok(())
}
