//! Which cluster a command talks to: a kubeconfig, read as kubectl does, or the service account of a pod.
//!
//! Whatever is wrong is said in words of this module: the parser's errors quote the text around a mistake, which may be a key or a token.

use std::path::Path;

use anyhow::bail;
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
        Err(KubeconfigError::Parse(_)) => bail!("the kubeconfig {} is not valid YAML of a kubeconfig", name(file)),
        Err(error) => bail!("cannot read the kubeconfig {}: {}", name(file), problem(&error)),
    };
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    match kube::Config::from_custom_kubeconfig(kubeconfig, &options).await {
        Ok(config) => Ok(config),
        Err(KubeconfigError::LoadContext(name)) => bail!("the kubeconfig has no context {name}; it has: {}", known.join(", ")),
        Err(KubeconfigError::CurrentContextNotSet) => {
            bail!("the kubeconfig has no current context; choose one with --context: {}", known.join(", "))
        }
        Err(error) => bail!("cannot use the kubeconfig {}: {}", name(file), problem(&error)),
    }
}

/// As [`load`] at the current context; where no file is named and none is there, the service account of the pod.
pub async fn load_or_in_cluster(file: Option<&Path>) -> anyhow::Result<kube::Config> {
    let named = file.is_some() || std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    match load(file, None).await {
        // A broken file must not lead to another cluster than the one it names.
        Err(error) if named => Err(error),
        Err(error) => match kube::Config::incluster() {
            Ok(config) => Ok(config),
            Err(_) => bail!("{error}; nor is there a service account of a pod"),
        },
        Ok(config) => Ok(config),
    }
}

fn name(file: Option<&Path>) -> String {
    file.map_or_else(|| "named by KUBECONFIG or in ~/.kube".to_owned(), |file| file.display().to_string())
}

/// What is wrong, without anything the file says.
fn problem(error: &KubeconfigError) -> &'static str {
    match error {
        KubeconfigError::CurrentContextNotSet => "it has no current context",
        KubeconfigError::KindMismatch => "its files are of different kinds",
        KubeconfigError::ApiVersionMismatch => "its files are of different versions",
        KubeconfigError::LoadContext(_) => "its context is not in it",
        KubeconfigError::LoadClusterOfContext(_) => "the cluster of its context is not in it",
        KubeconfigError::FindPath => "there is no home directory to look for it",
        KubeconfigError::ReadConfig(..) => "it cannot be read",
        KubeconfigError::Parse(_) => "it is not valid YAML of a kubeconfig",
        KubeconfigError::MissingClusterUrl => "its cluster has no server",
        KubeconfigError::ParseClusterUrl(_) => "its server is not a URL",
        KubeconfigError::ParseProxyUrl(_) => "its proxy is not a URL",
        KubeconfigError::LoadCertificateAuthority(_) => "its certificate authority cannot be loaded",
        KubeconfigError::LoadClientCertificate(_) => "its client certificate cannot be loaded",
        KubeconfigError::LoadClientKey(_) => "its client key cannot be loaded",
        KubeconfigError::ParseCertificates(_) => "its certificates are not PEM",
        // Further ones exist with features of the client that other crates of a build may switch on.
        #[allow(unreachable_patterns, reason = "depends on the features of the client")]
        _ => "it asks for something that is not supported",
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const CANARY: &str = "hunter2";

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("holdfast-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The whole chain, as both commands print it.
    async fn error(name: &str, text: &str) -> String {
        let path = file(name, text);
        let error = load_or_in_cluster(Some(&path)).await.unwrap_err();
        std::fs::remove_file(path).unwrap();
        format!("{error:#}\n{error:?}")
    }

    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: a, user: b}}\n\
             clusters:\n- name: a\n  cluster: {{{cluster}}}\nusers:\n- name: b\n  user: {{{user}}}\n"
        )
    }

    #[tokio::test]
    async fn no_error_quotes_the_file() {
        let good = "server: 'https://a.test'";
        for (name, text, words) in [
            ("cut", format!("users: [{{name: x, user: {{token: {CANARY}"), "not valid YAML"),
            ("shape", format!("users: {CANARY}\n"), "not valid YAML"),
            ("list", kubeconfig(good, &format!("token: [{CANARY}]")), "not valid YAML"),
            ("server", kubeconfig(&format!("server: 'https://{CANARY}^'"), "token: x"), "its server is not a URL"),
            ("authority", kubeconfig(&format!("{good}, certificate-authority-data: '{CANARY}!'"), "token: x"), "its certificate authority"),
            ("context", kubeconfig(good, "token: x").replace("current-context: c\n", ""), "no current context"),
            ("cluster", kubeconfig(good, "token: x").replace("cluster: a", "cluster: z"), "the cluster of its context"),
        ] {
            let error = error(name, &text).await;
            assert!(error.contains(words) && !error.contains(CANARY), "{name}: {error}");
        }
    }

    #[tokio::test]
    async fn a_missing_file_is_named() {
        let error = load_or_in_cluster(Some(Path::new("/nowhere/at-all"))).await.unwrap_err().to_string();
        assert!(error.contains("/nowhere/at-all") && error.contains("--kubeconfig"), "{error}");
    }
}
