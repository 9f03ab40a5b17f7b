"""What a step costs: profiles (YAML, strict), table look-ups, and the step cost the engine charges."""
