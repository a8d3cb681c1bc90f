//! `holdfast fix`: the same look as `scan`, then, after a word from whoever runs it, the same corrections as the hub's.

mod approve;
mod correcting;
mod proposals;

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context as _;
use clap::Args;
use holdfast_api::{policy::Mode, report::DriftReportStatus};
use holdfast_hub::{cluster::records::ReleaseName, policy::Guard};

use crate::{
    scan::{
        self, Output, Scope,
        paint::Paint,
        survey::{Guards, Look, Purpose, Survey},
    },
    selection::Selection,
};
use correcting::Corrector;
use proposals::Proposed;

pub use proposals::write_request;

/// Flags of the correction.
#[derive(Debug, Args)]
pub struct FixArguments {
    /// The releases.
    #[command(flatten)]
    selection: Selection,
    /// Do not ask.
    #[arg(short = 'y', long)]
    yes: bool,
    /// Only show what would be written.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Also create missing objects that grant rights or lie outside the release's namespace, on the word of the release record alone.
    #[arg(long)]
    trust: bool,
    /// On the management cluster: approve what the hub holds back because too many objects drifted at once, of one release or all.
    #[arg(long, num_args = 1..=2, value_names = ["CLUSTER", "RELEASE"],
          conflicts_with_all = ["all_namespaces", "namespace", "release", "trust", "output"])]
    approve: Vec<String>,
    /// How the result is printed.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    output: Output,
    /// Log filter, for example debug.
    #[arg(long, env = "HOLDFAST_LOG", default_value = "error", value_name = "FILTER")]
    log: String,
}

/// Exit status of a run that was interrupted, as shells expect it.
const INTERRUPTED: u8 = 130;

/// What a run came to.
struct Fixed {
    statuses: Vec<DriftReportStatus>,
    /// Something was left half done, or the user stopped it.
    code: Option<u8>,
}

/// Looks, asks, corrects and verifies. The exit status tells what is left.
pub async fn run(arguments: FixArguments) -> ExitCode {
    if let Err(error) = crate::logs::start(&arguments.log, crate::logs::LogFormat::Text) {
        eprintln!("holdfast: {error}");
        return ExitCode::from(2);
    }
    let done = async {
        somebody_agrees(&arguments)?;
        if !arguments.approve.is_empty() {
            return approve::approve(&arguments).await;
        }
        let fixed = Box::pin(fix(&arguments)).await?;
        Ok(ExitCode::from(fixed.code.unwrap_or_else(|| scan::exit_code(&fixed.statuses))))
    };
    match Box::pin(done).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("holdfast: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Said first: a question that nobody can answer should not cost a look at the cluster.
fn somebody_agrees(arguments: &FixArguments) -> anyhow::Result<()> {
    if arguments.yes || arguments.dry_run || std::io::stdin().is_terminal() {
        return Ok(());
    }
    anyhow::bail!("there is no terminal to ask on; --yes goes on without asking, --dry-run only shows what would be written")
}

async fn fix(arguments: &FixArguments) -> anyhow::Result<Fixed> {
    let reached = arguments.selection.target.reach().await?;
    let scope = arguments.selection.scope(&reached.namespace);
    // Another release, wherever its records are, may declare the same objects.
    let survey = reached.survey(Scope::Cluster, Purpose::Write, guards(arguments.trust)).await?;
    let only = arguments.selection.release.as_deref();
    let is_wanted = |release: &ReleaseName| scope.holds(&release.namespace) && only.is_none_or(|only| release.name == only);
    let mut look = survey.look(&scope, only, |release, _| is_wanted(release)).await?;
    let corrector = Corrector::new(&survey);
    let proposed = corrector.propose(&look).await?;
    if arguments.dry_run {
        scan::print_as(arguments.output, &proposed, |paint| proposals::render(&proposed, paint) + &left(&survey, &look, paint))?;
        return Ok(Fixed { statuses: statuses(&survey, &look), code: None });
    }
    if proposed.is_empty() {
        let statuses = statuses(&survey, &look);
        scan::print(&statuses, arguments.output)?;
        return Ok(Fixed { statuses, code: None });
    }
    if !arguments.yes && !agreed(&proposed)? {
        eprintln!("holdfast: nothing was written");
        return Ok(Fixed { statuses: statuses(&survey, &look), code: None });
    }
    let ended = Box::pin(corrector.correct(&mut look, &proposed, arguments.output)).await?;
    let statuses = statuses(&survey, &look);
    scan::print(&statuses, arguments.output)?;
    Ok(Fixed { statuses, code: ended.code() })
}

/// What a policy with `mode: Correct` and nothing else would say of every release.
fn guards(trust: bool) -> Guards {
    let guard = Arc::new(Guard { mode: Mode::Correct, trust, ..Guard::default_warn() });
    Box::new(move |_| Arc::clone(&guard))
}

fn statuses(survey: &Survey, look: &Look) -> Vec<DriftReportStatus> {
    look.subjects.values().map(|subject| survey.status(&subject.guardianship)).collect()
}

/// What was found, for whoever wants to know why something is not among the proposals.
fn left(survey: &Survey, look: &Look, paint: Paint) -> String {
    let statuses = statuses(survey, look);
    if statuses.is_empty() { String::new() } else { scan::table::render(&statuses, paint) }
}

/// Shows what would be written and asks.
fn agreed(proposed: &[Proposed]) -> anyhow::Result<bool> {
    let count = proposed.len();
    let question = if count == 1 { "Correct this object?".to_owned() } else { format!("Correct these {count} objects?") };
    agreed_to(&proposals::render(proposed, Paint::for_stderr()), &question)
}

/// Shows a text and asks. Standard output is for the result.
fn agreed_to(text: &str, question: &str) -> anyhow::Result<bool> {
    let mut err = std::io::stderr();
    write!(err, "{text}\n{question} [y/N] ").and_then(|()| err.flush()).context("cannot ask")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        for (answer, yes) in [("y\n", true), ("YES\n", true), (" y \n", true), ("\n", false), ("", false), ("n\n", false), ("yup\n", false)]
        {
            assert_eq!(is_yes(answer), yes, "{answer:?}");
        }
    }
}
