//! Volumes that were grown: nobody can shrink one, and the server refuses to.

use super::{Question, Yield, resources::is_larger};

pub(super) fn answer(question: &Question<'_>) -> Option<Yield> {
    let is_size = (question.is_any("", &["PersistentVolumeClaim"]) && question.is_at(&["spec", "resources", "requests", "storage"]))
        || (question.is_any("", &["PersistentVolume"]) && question.is_at(&["spec", "capacity", "storage"]));
    (is_size && is_larger(question.live?, question.declared?)?).then(|| Yield::theirs("the volume was grown and cannot shrink"))
}
