"""What a run says: metrics, intervals, frontiers, tables, pictures, files. Reads logs, never the engine."""
