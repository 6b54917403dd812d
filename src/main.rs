fn main() {
    if std::env::args().nth(1).as_deref() == Some(lifelong::sandbox::SUBCOMMAND) {
        lifelong::sandbox::launcher_main();
    }
}
