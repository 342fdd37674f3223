"""Local web pages: explore (prompts). Server-rendered, no build step, nothing from another host."""
