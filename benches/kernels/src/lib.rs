//! Kernels that only benchmarks run: a plain read, whose rate is the ceiling of every
//! call, and sampling from stored logits, which fusion has to beat.
//!
//! Built by `cargo xtask bench-ptx`; the noise, scores, candidates and the hand-over
//! between blocks are those of the product.

#![no_std]
#![feature(abi_ptx)]

use flash_sampling_kernels::abi::SampleParams;
use flash_sampling_kernels::arch;
use flash_sampling_kernels::candidate::{Key, Leaders};
use flash_sampling_kernels::kernels::finish::{self, Workspace};
use flash_sampling_kernels::kernels::sample_simt::row_params;
use flash_sampling_kernels::philox::Subkey;
use flash_sampling_kernels::score::{offer_pair, token_value};
use flash_sampling_kernels::status::Status;

/// What one instruction loads.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Quad([u32; 4]);

/// Loads of a thread that are in flight together.
const IN_FLIGHT: usize = 8;

/// Reads `data` and writes next to nothing: what depends on the data must not be
/// optimized away.
///
/// # Safety
/// `data` is valid for `quads` values, which whole steps of a block divide: 8 a thread;
/// `sink` is valid for one.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn bench_read(data: *const Quad, quads: u64, sink: *mut u32) {
    let threads = arch::block_dim() as u64;
    let per_block = threads * IN_FLIGHT as u64;
    let mut at = arch::block_idx() as u64 * per_block + arch::thread_idx() as u64;
    let mut folded = 0;
    while at < quads {
        let mut loaded = [Quad([0; 4]); IN_FLIGHT];
        let mut i = 0;
        while i < IN_FLIGHT {
            // SAFETY: `at` is below `quads`, which the block's step divides.
            loaded[i] = unsafe { data.add((at + i as u64 * threads) as usize).read() };
            i += 1;
        }
        i = 0;
        while i < IN_FLIGHT {
            let [a, b, c, d] = loaded[i].0;
            folded ^= a ^ b ^ c ^ d;
            i += 1;
        }
        at += arch::grid_dim() as u64 * per_block;
    }
    if folded == 0x9E37_79B9 {
        // SAFETY: the caller's promise.
        unsafe { sink.write(folded) };
    }
}

/// Tokens that a thread samples: in each of four places, eight that follow each other.
const TOKENS: u32 = 32;
/// Rows that share a counter of the workspace.
const TILE_B: u32 = flash_sampling_kernels::abi::simt::TILE_B;

/// Samples one token a row from logits `[B, V]` bf16 in memory.
///
/// A block takes `32 · threads` tokens of one row; blocks of a row follow each other.
/// A thread takes the sixteen pairs of [`offer_pair`] in two runs of 16 tokens.
///
/// # Safety
/// `logits` is aligned to 16 bytes and V a multiple of 8; S = 1, the first token is 0 and
/// neither scores nor margins are asked for; the rest of `params` is as every entry asks.
/// A block has whole warps, and the grid is B times the blocks of a row.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn bench_sample_logits(logits: *const Quad, params: SampleParams) {
    let (thread, threads) = (arch::thread_idx(), arch::block_dim());
    // The bounds spare the divisions their panics.
    let blocks = params.vocab.div_ceil((threads * TOKENS).max(1)).max(1);
    let (row, block) = (arch::block_idx() / blocks, arch::block_idx() % blocks);
    let index = block * threads + thread;
    // Four threads share a tile of 128 tokens.
    let first = index / 4 * 128 + index % 4 * 16;

    // SAFETY: the grid has B rows; a quad holds 8 tokens and is read where all are below V.
    unsafe {
        let workspace = Workspace::new(&params, params.batch);
        let mut status = Status::OK;
        let mut leaders = Leaders::NONE;
        let row_of_logits = logits.add((row as u64 * (params.vocab / 8) as u64) as usize);
        let load = |offset: u32| {
            let token = first + offset;
            // Without a branch, so that the four loads are in flight together.
            let quad = row_of_logits.add(token.min(params.vocab - 8) as usize / 8).read();
            // Minus infinity, twice a word.
            if token < params.vocab { quad } else { Quad([0xFF80_FF80; 4]) }
        };
        let [mut a, mut b, mut c, mut d] = [load(0).0, load(8).0, load(64).0, load(72).0];
        let row_params = row_params(&params, row);
        let threshold = finish::threshold(&params, &workspace, row, 0);
        let subkey = Subkey::new(row_params.key, 0);
        let mut offer = |words: [u32; 2], token: u32| {
            let mut y = [0.0; 2];
            let mut i = 0;
            while i < 2 {
                y[i] = token_value(f32::from_bits(words[i]), 0.0, &mut status);
                i += 1;
            }
            // Neither scores nor margins: only a new best changes an output.
            let best = leaders.first.score();
            let threshold = if best > threshold { best } else { threshold };
            offer_pair(y, token, row_params.temperature, subkey, threshold, &mut leaders);
        };
        let mut pair = 0;
        while pair < 4 {
            let token = first + 2 * pair;
            offer([a[0] << 16, b[0] << 16], token);
            offer([a[0] & 0xFFFF_0000, b[0] & 0xFFFF_0000], token + 1);
            offer([c[0] << 16, d[0] << 16], token + 64);
            offer([c[0] & 0xFFFF_0000, d[0] & 0xFFFF_0000], token + 65);
            // Registers have no index: the next word moves to the front.
            a = [a[1], a[2], a[3], a[0]];
            b = [b[1], b[2], b[3], b[0]];
            c = [c[1], c[2], c[3], c[0]];
            d = [d[1], d[2], d[3], d[0]];
            pair += 1;
        }

        finish::publish_status(&workspace, row, status);
        let best = warp_max(leaders.first);
        if thread % 32 == 0 {
            let leaders = Leaders { first: best, second: Key::NONE };
            finish::publish(&params, &workspace, row, 0, leaders);
        }
        let tile = row / TILE_B;
        let rows = (tile * TILE_B, ((tile + 1) * TILE_B).min(params.batch));
        if arch::block_arrive(workspace.tiles_done(tile), 1, (rows.1 - rows.0) * blocks) {
            finish::write_outputs(&params, &workspace, rows, thread, threads);
            arch::block_barrier();
            finish::clear(&workspace, rows, tile, thread, threads);
        }
    }
}

/// The best of a warp's keys, in every lane.
#[inline(always)]
fn warp_max(mut key: Key) -> Key {
    let mut lane_mask = 1;
    while lane_mask < 32 {
        let lane = (arch::thread_idx() % 32) ^ lane_mask;
        let bits = key.bits();
        let low = arch::shuffle_from(bits as u32, lane);
        let high = arch::shuffle_from((bits >> 32) as u32, lane);
        let theirs = Key::from_bits((high as u64) << 32 | low as u64);
        if theirs > key {
            key = theirs;
        }
        lane_mask *= 2;
    }
    key
}
