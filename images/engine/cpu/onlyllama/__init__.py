"""SGLang's external model package: only the models the CPU engine needs, instead of importing some 250 files."""
