//! `cargo xtask release`: the program as it is to be installed, laid out for what a server does most.
//!
//! It is built with counters in it; then loaded, on six directories, with what `gabion bench` can do; then built anew, with what was counted (profile-guided optimization, docs/adr/0019-profile-guided-release.md). The code that requests run through then lies together, apart from
//! what is rare, and is inlined where it is called often.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};

use crate::{
    bench::{ACCESS_KEY, SECRET_KEY, Server},
    cargo::{cargo, target_dir},
    process::{output, run},
    summary::say,
};

const USAGE: &str = "cargo xtask release [--dir DIRECTORY]";
const GEOMETRY: &str = "4+2";
const TARGETS: usize = 6;
/// Between the flags of `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// What the counting program does, as arguments of `gabion bench`: small objects by many and by one, large ones, lists, parts, and the patterns of IO500.
/// By counts, not by time: slow machines count the same.
const LOADS: [&str; 14] = [
    "put --size 4KiB -c 64 -n 60000",
    "put --size 4KiB -c 64 -n 20000 --payload signed",
    "put --size 4KiB -c 1 -n 2000",
    "get --size 4KiB -c 64 -n 150000 --objects 4000",
    "stat --size 4KiB -c 64 -n 150000 --objects 4000",
    "mixed --size 4KiB -c 64 -n 60000 --objects 4000",
    "delete --size 4KiB -c 64 -n 20000",
    "list --size 1 -c 4 -n 400 --objects 20000",
    "list --size 1 -c 4 -n 400 --objects 20000 --per-folder 100 --delimiter /",
    "put --size 16MiB -c 16 -n 60",
    "get --size 16MiB -c 16 -n 120 --objects 16",
    "multipart --size 32MiB -c 4 -n 8",
    "ior-hard -c 8 -n 2000",
    "md-workbench -c 16 -n 5000",
];

/// Builds, loads, builds again, and says where the program is.
///
/// # Errors
/// When the arguments are not understood, a tool is missing, or a build or a load fails.
pub(crate) fn run_all(arguments: &[String]) -> anyhow::Result<()> {
    let directory = match arguments {
        [] => env::temp_dir(),
        [flag, directory] if flag == "--dir" => directory.into(),
        _ => bail!(USAGE),
    };
    let compiler = Compiler::find()?;
    let merge = compiler.profdata()?;
    let place = target_dir()?.join("guided");
    let counts = place.join("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts).with_context(|| counts.display().to_string())?;
    }
    // Nothing differs but the flag: what else does (link-time optimisation, say) cargo puts into the names of functions, by which counts are found again.
    let counting = compiler.build(&place, &format!("-Cprofile-generate={}", counts.display()))?;
    let counting = keep(&counting, &place.join("gabion-counting"))?;
    load(&counting, &directory)?;
    let profile = place.join("gabion.profdata");
    run(Command::new(merge).arg("merge").arg("-o").arg(&profile).args(files(&counts)?))?;
    let program = compiler.build(&place, &format!("-Cprofile-use={}", profile.display()))?;
    let program = keep(&program, &place.join("gabion"))?;
    say(&format!("the program is {}", program.display()));
    Ok(())
}

/// What rustc is, and where its tools lie.
struct Compiler {
    host: String,
    tools: PathBuf,
}

impl Compiler {
    fn find() -> anyhow::Result<Self> {
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let version = output(Command::new(&rustc).arg("-vV"))?;
        let host = host(&version).context("rustc does not say what it builds for")?.to_owned();
        let sysroot = output(Command::new(&rustc).args(["--print", "sysroot"]))?;
        let tools = Path::new(sysroot.trim()).join("lib/rustlib").join(&host).join("bin");
        Ok(Self { host, tools })
    }

    /// The program that merges counts: it must be of the compiler's own LLVM. Rustup has it.
    fn profdata(&self) -> anyhow::Result<PathBuf> {
        let program = self.tools.join("llvm-profdata");
        if !program.exists() {
            run(Command::new("rustup").args(["component", "add", "llvm-tools"]))
                .context("llvm-profdata is needed: it comes with `rustup component add llvm-tools`")?;
        }
        ensure!(program.exists(), "there is no {}, though rustup has installed llvm-tools", program.display());
        Ok(program)
    }

    /// Builds the program with one more flag for all that runs in it, and for nothing that only builds it: hence `--target`.
    fn build(&self, place: &Path, flag: &str) -> anyhow::Result<PathBuf> {
        let flags = with_flag(env::var("CARGO_ENCODED_RUSTFLAGS").ok(), env::var("RUSTFLAGS").ok(), flag);
        let mut command = cargo("build")?;
        command.args(["--release", "-p", "gabion", "--target", &self.host]);
        run(command.env("CARGO_TARGET_DIR", place).env("CARGO_ENCODED_RUSTFLAGS", flags))?;
        Ok(place.join(&self.host).join("release/gabion"))
    }
}

/// Which machine `rustc -vV` names.
fn host(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("host: "))
}

/// The compiler's flags that stand in the environment, and one more, as cargo takes them where paths may have spaces. What configuration files say is left out, as always
/// when the environment says something.
fn with_flag(encoded: Option<String>, plain: Option<String>, flag: &str) -> String {
    let plain = || plain.map(|plain| plain.split_whitespace().collect::<Vec<_>>().join(SEPARATOR));
    match encoded.or_else(plain).filter(|flags| !flags.is_empty()) {
        Some(flags) => [&flags, flag].join(SEPARATOR),
        None => flag.to_owned(),
    }
}

/// A copy that the next build leaves alone.
fn keep(program: &Path, copy: &Path) -> anyhow::Result<PathBuf> {
    fs::copy(program, copy).with_context(|| format!("copying {} to {}", program.display(), copy.display()))?;
    Ok(copy.to_owned())
}

/// Puts all loads on the program. It writes its counts when it ends: client and server alike.
fn load(program: &Path, directory: &Path) -> anyhow::Result<()> {
    let place = directory.join(format!("gabion-release-{}", std::process::id()));
    let loaded = Server::start(program, &place, GEOMETRY, TARGETS, &[]).and_then(|server| {
        for load in LOADS {
            let mut command = Command::new(program);
            command.arg("bench").args(load.split(' ')).args(["--warmup", "0s", "--endpoint", &server.endpoint]);
            run(command.env("GABION_ACCESS_KEY", ACCESS_KEY).env("GABION_SECRET_KEY", SECRET_KEY))?;
        }
        server.stop()
    });
    let removed = fs::remove_dir_all(&place);
    loaded?;
    removed.with_context(|| place.display().to_string())
}

/// The files of a directory; an error when there are none.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let files = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!files.is_empty(), "the loads left no counts in {}", directory.display());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_in_the_version() {
        let version =
            "rustc 1.95.0\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(host(version), Some("x86_64-unknown-linux-gnu"));
        assert_eq!(host("rustc 1.95.0\n"), None);
    }

    #[test]
    fn flags_of_the_environment_stay() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(with_flag(None, None, "-Cb=/a b"), "-Cb=/a b");
        assert_eq!(with_flag(None, text(" "), "-Cb"), "-Cb");
        assert_eq!(with_flag(None, text("-C a=1"), "-Cb"), "-C\u{1f}a=1\u{1f}-Cb");
        assert_eq!(with_flag(text("-Ca=/a b"), text("-Cc"), "-Cb"), "-Ca=/a b\u{1f}-Cb");
    }
}
