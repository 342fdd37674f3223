"""Local web pages: explore (prompts), annotate (labels). Server-rendered, no build step, nothing from another host."""
