//! Carries out what was agreed to: each write is decided on again by the engine, sent only if it is the one that was shown, and verified.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use holdfast_api::report::{Action, Finding, Outcome, Verdict};
use holdfast_engine::decide::Judgement;
use holdfast_fleet::term::Term;
use holdfast_hub::cluster::{
    context::{Context, Examined, Leave, Sends},
    guarded::Guarded,
    source::{Guardianship, object_ref},
    state::StateId,
};
use tokio::signal::ctrl_c;

use super::{INTERRUPTED, proposals::Proposed};
use crate::scan::{
    CLUSTER, Output,
    survey::{Look, Subject, Survey},
};

/// Judgements at the same time while proposals are made.
const ASKING: usize = 16;
/// How often a write is decided on again that met somebody else's.
const ATTEMPTS: usize = 3;
/// How often the second write of a repair is tried.
const PAYMENTS: usize = 5;

/// Writes what was agreed to.
pub struct Corrector<'a> {
    survey: &'a Survey,
    /// Moved when the user interrupts: no write begins after that.
    word: Arc<AtomicU64>,
}

/// How the corrections ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    interrupted: bool,
    half_done: bool,
}

impl Ended {
    /// The exit status, where it does not follow from what is left.
    pub fn code(self) -> Option<u8> {
        match self {
            Self { half_done: true, .. } => Some(2),
            Self { interrupted: true, .. } => Some(INTERRUPTED),
            Self { .. } => None,
        }
    }
}

impl<'a> Corrector<'a> {
    /// Nothing is written yet.
    pub fn new(survey: &'a Survey) -> Self {
        Self { survey, word: Arc::default() }
    }

    fn leave(&self) -> Leave {
        Leave::now(&self.word, &Term::unlimited())
    }

    fn context(&self, look: &Look, known: &Guardianship, guarded: &Guarded, sends: Sends) -> Context {
        look.around.writing(known, guarded, self.survey.examiner.clock.now(), self.leave(), sends)
    }

    /// What would be written, without writing it: every object that is not as declared is judged again as if it were to be corrected.
    pub async fn propose(&self, look: &Look) -> anyhow::Result<Vec<Proposed>> {
        let differing = look.subjects.values().flat_map(|subject| {
            let known = &subject.guardianship;
            let differs = |guarded: &&Arc<Guarded>| known.verdict(id_of(guarded)) != Some(Verdict::InSync);
            subject.objects.iter().filter(differs).map(move |guarded| (known, guarded))
        });
        let judgements = stream::iter(differing).map(|(known, guarded)| async move {
            let context = self.context(look, known, guarded, Sends::Nothing);
            (known, guarded, self.survey.examine(guarded, &context, None, &look.around).await)
        });
        let judged: Vec<(&Guardianship, &Arc<Guarded>, Examined)> = judgements.buffered(ASKING).collect().await;
        let mut proposed = Vec::new();
        for (known, guarded, examined) in judged {
            if let Some(error) = examined.unreachable {
                return Err(error).context("the cluster stopped answering");
            }
            let Some(proposal) = examined.proposal else { continue };
            proposed.push(Proposed {
                release: known.name.clone(),
                finding: finding(guarded, &examined.uid, examined.judgement),
                write: proposal.shown,
                guarded: Arc::clone(guarded),
                identity: proposal.identity,
            });
        }
        Ok(proposed)
    }

    /// Writes, one object after the other: what a manifest declares first may be what the next object needs. An interruption lets the
    /// object under way be finished.
    pub async fn correct(&self, look: &mut Look, proposed: &[Proposed], output: Output) -> anyhow::Result<Ended> {
        let mut ended = Ended::default();
        let mut work = Box::pin(self.correct_all(look, proposed, output));
        let mut interruption = Box::pin(ctrl_c());
        loop {
            // Cancel-safe: both are polled to their ends.
            tokio::select! {
                half_done = &mut work => {
                    ended.half_done = half_done?;
                    return Ok(ended);
                }
                pressed = &mut interruption, if !ended.interrupted => {
                    pressed.context("cannot notice an interruption")?;
                    ended.interrupted = true;
                    self.word.fetch_add(1, Ordering::AcqRel);
                    eprintln!("holdfast: interrupted; the object under way is finished, nothing else is written");
                }
            }
        }
    }

    /// Answers whether something was left half done.
    async fn correct_all(&self, look: &mut Look, proposed: &[Proposed], output: Output) -> anyhow::Result<bool> {
        let leave = self.leave();
        let mut half_done = false;
        for proposal in proposed {
            if !leave.holds() {
                break;
            }
            let Some(subject) = look.subjects.get(&proposal.release) else { continue };
            let mut examined = self.write(look, subject, proposal, &leave).await;
            if let (Some(error), None) = (&examined.unreachable, &examined.write) {
                return Err(error.clone()).context("the cluster stopped answering");
            }
            let mut taken_in = vec![(examined.uid.clone(), examined.judgement.clone())];
            let written = examined.write.take();
            let mut said = examined.judgement.message.clone();
            if examined.proposal.is_some() && written.is_none() {
                "the object changed since this was shown; nothing was written".clone_into(&mut said);
            }
            let has_changed = written.as_ref().is_some_and(|written| matches!(written.outcome, Outcome::Corrected | Outcome::Recreated));
            if has_changed || examined.state.owed.is_some() {
                let verified = self.verify(look, subject, &proposal.guarded, examined).await;
                if verified.state.owed.is_some() {
                    half_done = true;
                    said = format!(
                        "the fields are put back, but managedFields could not be: until another correction of them, helm upgrade may report a \
                         conflict about them (manager {})",
                        proposal.write.manager
                    );
                } else if verified.judgement.verdict != Verdict::InSync {
                    said = format!("written, yet not as declared afterwards: {}", verified.judgement.message);
                }
                taken_in.push((verified.uid, verified.judgement));
            }
            if output == Output::Table {
                println!("{}: {said}", proposal.guarded.key);
            }
            let now = self.survey.examiner.clock.now();
            let Some(Subject { guardianship, .. }) = look.subjects.get_mut(&proposal.release) else { continue };
            let key = &proposal.guarded.key;
            if let Some(written) = written {
                guardianship.wrote(written.record(key, &taken_in.first().map(|(uid, _)| uid.clone()).unwrap_or_default(), now));
            }
            for (uid, judgement) in &taken_in {
                guardianship.judged(id_of(&proposal.guarded), key, uid, judgement, now);
            }
        }
        Ok(half_done)
    }

    /// Decides again and writes if that comes to what was shown. A write that met somebody else's is decided on anew.
    async fn write(&self, look: &Look, subject: &Subject, proposal: &Proposed, leave: &Leave) -> Examined {
        let known = &subject.guardianship;
        let context =
            || Context { leave: Some(leave.clone()), ..self.context(look, known, &proposal.guarded, Sends::Only(proposal.identity)) };
        let mut attempts = 1;
        loop {
            let examined = self.survey.examine(&proposal.guarded, &context(), None, &look.around).await;
            let met_another = examined.write.as_ref().is_some_and(|write| write.outcome == Outcome::Conflict);
            if !met_another || attempts == ATTEMPTS {
                return examined;
            }
            attempts += 1;
        }
    }

    /// Judges what was written as the hub would on its next look, with what was learnt from the write. Finishes a repair of two writes.
    async fn verify(&self, look: &Look, subject: &Subject, guarded: &Guarded, mut examined: Examined) -> Examined {
        for _ in 0..PAYMENTS {
            let mut state = examined.state;
            // Compared in full, not by digest.
            state.in_sync = None;
            let context = self.context(look, &subject.guardianship, guarded, Sends::Nothing);
            examined = self.survey.examiner.examine(guarded, state, &context).await;
            if examined.state.owed.is_none() {
                break;
            }
        }
        examined
    }
}

fn id_of(guarded: &Guarded) -> StateId {
    StateId::of(CLUSTER, &guarded.key)
}

/// A judgement as a report lists it.
fn finding(guarded: &Guarded, uid: &str, judgement: Judgement) -> Finding {
    Finding {
        object: object_ref(&guarded.key, uid),
        verdict: judgement.verdict,
        action: Action::None,
        reason: judgement.reason,
        message: judgement.message,
        paths: judgement.paths,
        paths_truncated: 0,
        first_seen: None,
        last_seen: None,
        count: 1,
    }
}
