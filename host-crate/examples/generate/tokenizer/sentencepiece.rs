//! SentencePiece's pieces, as Llama 2 and Mistral have them: spaces are `▁`, and of all
//! pairs of neighbors the one that makes the best-scored piece merges first.

use anyhow::{Context, Result, anyhow};
use tokenizers::{
    AddedToken, Tokenizer,
    decoders::{byte_fallback::ByteFallback, fuse::Fuse, sequence::Sequence, strip::Strip},
    models::bpe::{BPE, Vocab},
    normalizers::{Prepend, Replace, Sequence as Normalizers},
    processors::template::TemplateProcessing,
};

use crate::gguf::Gguf;

const SPACE: &str = "▁";
/// Kinds of tokens in `tokenizer.ggml.token_type` that text matches whole.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// The tokenizer of a file whose `tokenizer.ggml.model` is `llama`.
pub(super) fn build(gguf: &Gguf) -> Result<Tokenizer> {
    let pieces = gguf.list("tokenizer.ggml.tokens", |value| value.to_string().cloned())?;
    let scores = gguf.list("tokenizer.ggml.scores", |value| value.to_f32())?;
    let kinds = gguf.list("tokenizer.ggml.token_type", |value| value.to_i32())?;
    let special = |name| pieces.get(usize::try_from(gguf.token_id(name)?).ok()?).cloned();
    let adds = |name, otherwise| {
        let key = format!("tokenizer.ggml.add_{name}");
        gguf.value(&key).and_then(|value| value.to_bool().ok()).unwrap_or(otherwise)
    };

    let vocab: Vocab = pieces.iter().cloned().zip(0..).collect();
    let merges = merges(&pieces, &scores, &vocab);
    let mut model =
        BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unknown) = special("unknown") {
        model = model.unk_token(unknown);
    }
    let mut tokenizer = Tokenizer::new(model.build().map_err(broken)?);

    let mut normalizers = vec![Replace::new(" ", SPACE).map_err(broken)?.into()];
    let mut decoders = vec![
        Replace::new(SPACE, " ").map_err(broken)?.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if adds("space_prefix", true) {
        normalizers.insert(0, Prepend::new(SPACE.to_owned()).into());
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_normalizer(Some(Normalizers::new(normalizers))).map_err(broken)?;
    tokenizer.with_decoder(Some(Sequence::new(decoders)));

    if let (true, Some(bos)) = (adds("bos_token", true), special("bos")) {
        let id = gguf.token_id("bos").unwrap_or_default() as u32;
        let template = TemplateProcessing::builder()
            .try_single(format!("{bos} $A"))
            .map_err(|reason| broken(reason.into()))?
            .special_tokens(vec![(bos, id)])
            .build()
            .context("the model's tokenizer cannot be built, pass another --model")?;
        tokenizer.with_post_processor(Some(template));
    }
    let whole = pieces.into_iter().zip(kinds).filter_map(|(piece, kind)| match kind {
        CONTROL => Some(AddedToken::from(piece, true)),
        USER_DEFINED => Some(AddedToken::from(piece, false).normalized(false)),
        _ => None,
    });
    tokenizer.add_tokens(whole).map_err(broken)?;
    Ok(tokenizer)
}

/// Every way to make a piece of two others, the best-scored pieces first.
fn merges(pieces: &[String], scores: &[f32], vocab: &Vocab) -> Vec<(String, String)> {
    let mut order: Vec<_> = pieces.iter().zip(scores).collect();
    order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let pairs = order.into_iter().flat_map(|(piece, _)| {
        piece.char_indices().skip(1).filter_map(move |(at, _)| {
            let (left, right) = piece.split_at(at);
            (vocab.contains_key(left) && vocab.contains_key(right))
                .then(|| (left.to_owned(), right.to_owned()))
        })
    });
    pairs.collect()
}

fn broken(reason: tokenizers::Error) -> anyhow::Error {
    anyhow!("the model's tokenizer cannot be built ({reason}), pass another --model")
}
