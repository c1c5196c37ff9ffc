//! What the rows of a case say of single tokens.

use flash_sampling::{SeenToken, TokenRules};

/// One row's rules.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Tokens that the penalties apply to.
    pub seen: Vec<SeenToken>,
    /// Added to the logits.
    pub logit_bias: Vec<(u32, f32)>,
    /// A bit for each token.
    pub bitmask: Option<Vec<u32>>,
    /// The tokens that are admitted.
    pub allow_list: Option<Vec<u32>>,
    /// Tokens that are not.
    pub ban_list: Vec<u32>,
}

impl Rules {
    /// Rules with this bitmask alone.
    pub fn of_bitmask(words: &[u32]) -> Self {
        Self { bitmask: Some(words.to_vec()), ..Self::default() }
    }

    /// The library's view.
    pub fn view(&self) -> TokenRules<'_> {
        TokenRules {
            seen: &self.seen,
            logit_bias: &self.logit_bias,
            bitmask: self.bitmask.as_deref(),
            allow_list: self.allow_list.as_deref(),
            ban_list: &self.ban_list,
        }
    }

    /// Whether bitmask and lists let the token with this id be drawn.
    pub fn admits(&self, id: u32) -> bool {
        let masked = self.bitmask.as_ref().is_none_or(|words| {
            let bits = words[id as usize / 32];
            (0..32).any(|bit| bit == id % 32 && bits & 1 << bit != 0)
        });
        let listed = self.allow_list.as_ref().is_none_or(|ids| ids.contains(&id));
        masked && listed && !self.ban_list.contains(&id)
    }
}
