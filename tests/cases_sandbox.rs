use lifelong::sandbox::python::Interpreter;
use lifelong::sandbox::*;

#[test]
fn smoke() {
    Launcher::of_binary(env!("CARGO_BIN_EXE_lifelong")).use_for_process();
    let sandbox = Sandbox::start(SandboxOptions::default()).unwrap();
    println!("{}", sandbox.layers());
    let python = Interpreter::find("python3").unwrap();
    println!("{python:?}");
    let started = std::time::Instant::now();
    let outcome = sandbox.run(&python.job("print(6*7)\nimport os\nprint(os.listdir('.'), os.getpid(), os.getuid(), open('/proc/self/cgroup').read(), os.listdir('/usr'))\nprint(os.environ)", Limits::default()));
    println!("{:?}", started.elapsed());
    let o = outcome.unwrap();
    println!(
        "{:?} {:?} {:?}\n{}\n{}",
        o.ending,
        o.spent,
        o.layers,
        String::from_utf8_lossy(&o.stdout),
        String::from_utf8_lossy(&o.stderr)
    );
}
