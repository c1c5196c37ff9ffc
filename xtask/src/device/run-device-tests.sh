#!/usr/bin/env bash
# Runs what `cargo xtask device-bundle` put beside this file.
#
#   run-device-tests.sh [test|sanitize|bench|demo] [ARGUMENTS...]
#
# Needs the NVIDIA driver and nothing else; `sanitize` needs compute-sanitizer too,
# in PATH or named by COMPUTE_SANITIZER, and `demo` a model: --model FILE.gguf.
# ARGUMENTS go to the programs. Exits with an error if anything failed.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
tests=(device device_doors)

# Without a GPU the tests must fail, not pass by skipping.
export FLASH_SAMPLING_REQUIRE_GPU=1

# Containers keep the driver's libraries where the loader does not look by itself.
for folder in /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
    if [ -e "$folder/libcuda.so.1" ]; then
        export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
    fi
done

# All of them, also after a failure: a GPU machine is not always at hand.
run_tests() {
    local failed=0
    for test in "${tests[@]}"; do
        "$here/$test" "$@" || failed=1
    done
    return "$failed"
}

# Every tool over every test binary, one line each at the end. Tests named `long_…`
# repeat what shorter ones cover and would take hours under a tool; racecheck, the
# slowest, leaves out four more that repeat the same launches many times.
sanitize() {
    local sanitizer="${COMPUTE_SANITIZER:-compute-sanitizer}"
    command -v "$sanitizer" >/dev/null || {
        echo "no $sanitizer: it comes with the CUDA toolkit; name it in COMPUTE_SANITIZER" >&2
        exit 1
    }
    local summary="" failed=0
    for tool in memcheck racecheck synccheck initcheck; do
        local skips=(--skip long_)
        [ "$tool" != racecheck ] || skips+=(--skip distribution:: --skip ids_stay_below_v)
        for test in "${tests[@]}"; do
            local outcome=clean
            "$sanitizer" --tool "$tool" --error-exitcode 9 \
                "$here/$test" --test-threads=1 "${skips[@]}" "$@" || outcome="failed ($?)"
            [ "$outcome" = clean ] || failed=1
            summary+="$(printf '%-10s %-14s %s' "$tool" "$test" "$outcome")"$'\n'
        done
    done
    printf '\n%s' "$summary"
    return "$failed"
}

# The same text on the CPU and on the GPU.
demo() {
    local cpu gpu
    cpu="$("$here/generate" --device cpu "$@")"
    gpu="$("$here/generate" --device cuda "$@")"
    printf '%s\n' "$gpu"
    if [ "$cpu" != "$gpu" ]; then
        printf '\nthe texts differ; on the CPU it is\n%s\n' "$cpu" >&2
        return 1
    fi
    echo "the same text on the CPU and on the GPU"
}

command="${1:-test}"
[ $# -eq 0 ] || shift
case "$command" in
    test) run_tests "$@" ;;
    sanitize) sanitize "$@" ;;
    bench) "$here/decode" "$@" ;;
    demo) demo "$@" ;;
    *)
        sed -n '2,/^set/ { /^#/ s/^# \{0,1\}//p }' "$0" >&2
        exit 2
        ;;
esac
