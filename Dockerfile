# The image of plumb: one static binary, no shell, no package manager.
#
#   docker build -t registry.example.com/plumb:0.1.0 .
#
# Reproducible: the toolchain and, by Cargo.lock, every dependency are pinned, the binary is linked with musl, which is static, and the
# paths of the build are not in it. SOURCE_DATE_EPOCH makes the layers equal, too, where the builder supports it.
FROM docker.io/library/rust:1.95-alpine AS build
# For the allocator, which is in C.
RUN apk add --no-cache gcc make musl-dev
WORKDIR /src
COPY . .
# With a target named, these flags are those of the binary and not of build scripts and macros.
RUN target=$(rustc -vV | sed -n 's/^host: //p') \
    && RUSTFLAGS="--remap-path-prefix=/src=/plumb --remap-path-prefix=$CARGO_HOME=/cargo" \
       cargo build --locked --profile dist --target "$target" --package plumb --bin plumb \
    && cp "target/$target/dist/plumb" /plumb

FROM scratch
COPY --from=build /plumb /plumb
USER 65532:65532
ENTRYPOINT ["/plumb"]
