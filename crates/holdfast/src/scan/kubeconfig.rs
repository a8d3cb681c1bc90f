//! The user's own kubeconfig, read as kubectl does.

use std::path::Path;

use anyhow::{Context as _, bail};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

/// Reads the kubeconfig: this file, else those of `KUBECONFIG`, else `~/.kube/config`.
pub async fn load(file: Option<&Path>, context: Option<String>) -> anyhow::Result<kube::Config> {
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let kubeconfig = match kubeconfig {
        Ok(kubeconfig) => kubeconfig,
        Err(KubeconfigError::ReadConfig(error, path)) => {
            bail!("cannot read the kubeconfig {} ({}); name another with --kubeconfig or KUBECONFIG", path.display(), error.kind())
        }
        // The parser quotes the text around the error, which may be a key.
        Err(KubeconfigError::Parse(_)) => {
            let name = file.map_or_else(|| "named by KUBECONFIG".to_owned(), |file| file.display().to_string());
            bail!("the kubeconfig {name} is not valid YAML of a kubeconfig")
        }
        Err(error) => return Err(error).context("cannot read the kubeconfig"),
    };
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    match kube::Config::from_custom_kubeconfig(kubeconfig, &options).await {
        Ok(config) => Ok(config),
        Err(KubeconfigError::LoadContext(name)) => bail!("the kubeconfig has no context {name}; it has: {}", known.join(", ")),
        Err(KubeconfigError::CurrentContextNotSet) => {
            bail!("the kubeconfig has no current context; choose one with --context: {}", known.join(", "))
        }
        Err(error) => Err(anyhow::anyhow!("cannot use the kubeconfig: {error}")),
    }
}
