//! Command-line programs run to their end.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    control_plane::ControlPlane,
    programs::Program,
    supervisor::{Launch, Supervised},
};

/// Longer than any test should wait; what waits for readiness has a shorter one of its own.
const DEADLINE: Duration = Duration::from_mins(3);

static SERIAL: AtomicU32 = AtomicU32::new(0);

impl ControlPlane {
    /// Runs kubectl as the administrator; answers standard output, or standard error as the error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.run(Program::Kubectl, &[], args).await
    }

    /// Runs a program with a kubeconfig, caches and homes of its own, and these variables beside them.
    pub(crate) async fn run(&self, program: Program, variables: &[(&str, &str)], args: &[&str]) -> Result<String> {
        let home = self.dir().join(program.file_name());
        fs::create_dir_all(&home).with_context(|| format!("creating {}", home.display()))?;
        let kubeconfig = home.join("kubeconfig");
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let file = |extension: &str| home.join(format!("{serial}.{extension}"));
        let (out, err) = (file("out"), file("err"));
        // Written whole and then renamed: another run may be reading it.
        let fresh = file("kubeconfig");
        fs::write(&fresh, self.kubeconfig(program.file_name(), &["system:masters"])?).context("writing a kubeconfig")?;
        fs::rename(&fresh, &kubeconfig).context("writing a kubeconfig")?;

        let homes = ["HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
        let mut env: Vec<(OsString, OsString)> = homes.into_iter().map(|name| (name.into(), home.clone().into())).collect();
        env.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        env.push(("KUBECONFIG".into(), kubeconfig.into()));
        env.extend(std::env::var_os("PATH").map(|path| ("PATH".into(), path)));

        let program_path = program.path()?;
        let launch = Launch {
            program: &program_path,
            args: args.iter().map(OsString::from).collect(),
            env,
            work_dir: self.work_dir(),
            out: out.clone(),
            err: err.clone(),
        };
        let status = Supervised::start(launch)?.wait(DEADLINE).await.with_context(|| call_of(program, args))?;
        if !status.success() {
            bail!("{}: {}", call_of(program, args), read(&err)?.trim_end());
        }
        read(&out)
    }
}

/// The program and what it was to do, without the rest, which may hold values.
fn call_of(program: Program, args: &[&str]) -> String {
    format!("{} {}", program.file_name(), args.first().copied().unwrap_or_default())
}

fn read(path: &PathBuf) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
