use flash_sampling::*;
use std::time::Instant;
fn main() {
    let (v, d) = (151_936usize, 16usize);
    let mut s = 12345u64;
    let mut r = || {
        s = s.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((s >> 40) as f32) / 16777216.0 - 0.5
    };
    let w: Vec<bf16> = (0..v * d).map(|_| bf16::from_f32(r() * 4.0)).collect();
    let h: Vec<bf16> = (0..d).map(|_| bf16::from_f32(r() * 2.0)).collect();
    let inputs = Inputs::new(
        MatrixRef::new(Operand::HiddenStates, &h, 1, d).unwrap(),
        MatrixRef::new(Operand::Weights, &w, v, d).unwrap(),
    );
    let mut sampler = Sampler::cpu_with(CpuOptions { threads: Some(1), variant: None }).unwrap();
    let p = SamplingParams::new(0.8, 1, 2);
    for (name, p) in [
        ("plain", p),
        ("min_p", p.with_min_p(0.05)),
        ("top_k", p.with_top_k(50)),
        ("top_p", p.with_top_p(0.9)),
        ("flat top_p", SamplingParams::new(50.0, 1, 2).with_top_p(0.9)),
    ] {
        let mut out = Output::default();
        let mut best = f64::MAX;
        for _ in 0..20 {
            let t = Instant::now();
            sampler.sample(&inputs, &[p], 1, &mut out).unwrap();
            best = best.min(t.elapsed().as_secs_f64());
        }
        println!("{name}: {:.3} ms", best * 1e3);
    }
    for (name, wanted) in [
        ("logprobs", Wanted { logprobs: true, ..Wanted::default() }),
        ("ranks", Wanted { ranks: true, ..Wanted::default() }),
        ("best", Wanted { best: 20, ..Wanted::default() }),
        ("entropy", Wanted { entropies: true, ..Wanted::default() }),
    ] {
        let mut out = Output::default();
        out.processed.wanted = wanted;
        let mut best = f64::MAX;
        for _ in 0..20 {
            let t = Instant::now();
            sampler.sample(&inputs, &[p], 1, &mut out).unwrap();
            best = best.min(t.elapsed().as_secs_f64());
        }
        println!("{name}: {:.3} ms", best * 1e3);
    }
}
